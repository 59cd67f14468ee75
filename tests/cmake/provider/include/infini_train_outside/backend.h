#pragma once

namespace infini_train::outside {

void RegisterBackend();

}  // namespace infini_train::outside
