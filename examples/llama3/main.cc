#include "infini_train/trainer/cli.h"
#include "infini_train/trainer/options.h"

int main(int argc, char** argv) {
  infini_train::trainer::TrainOptions options;
  options.default_model = "llama3";
  options.learning_rate = 1e-5;
  return infini_train::trainer::ModelMain(argc, argv, options);
}
