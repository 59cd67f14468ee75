#pragma once

/// What the stand-in's parts share.
namespace maca_standin {

bool IsInitialized();
/// What MACA_LAUNCH_BLOCKING said at mcInit.
bool IsLaunchBlocking();

}  // namespace maca_standin
