#pragma once

// The runtime API for the host.

#include "mcr/host_api.h"
