# The host compiler compiles sim; InfiniRT's CPU runtime is its device.
set(infinitrain_rt_backends cpu)
