#include "infini_train/trainer/cli.h"
#include "infini_train/trainer/options.h"

int main(int argc, char** argv) {
  infini_train::trainer::TrainOptions options;
  options.default_model = "mixtral";
  return infini_train::trainer::ModelMain(argc, argv, options);
}
