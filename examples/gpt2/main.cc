#include "infini_train/trainer/cli.h"

int main(int argc, char** argv) {
  return infini_train::trainer::ModelMain(argc, argv, "gpt2");
}
