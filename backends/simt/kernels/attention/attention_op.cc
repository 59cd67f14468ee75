// Apart from the kernels: a provider with a library for attention leaves this file out.
#include "backends/simt/kernels/attention/attention.h"

namespace infini_train::simt {

SIMT_REGISTER_KERNEL(Attention, &PortableAttention);
SIMT_REGISTER_KERNEL(AttentionBackward, &PortableAttentionBackward);

}  // namespace infini_train::simt
