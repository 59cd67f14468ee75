#include "infini_train/trainer/cli.h"

int main(int argc, char** argv) {
  return infini_train::trainer::InfiniTrainMain(argc, argv);
}
