#pragma once

// The runtime API, and in units of the language maca (-x maca) the device language.

#include "mcr/host_api.h"

#include "mcr/device_language.h"
