// What a loop at the head of a technique's page has around it. tests/docs/run compiles each as it is without its lines
// of + and without those of -, and runs none.
#pragma once

#include "data/loader/loader.h"
#include "engine/captured_work.h"
#include "engine/checkpoint.h"
#include "kernels/augment/augment.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/files/run_folder.h"
#include "models/layers.h"
#include "models/lora.h"
#include "models/training/gradient_sum.h"

using namespace hs;

extern const SampleSource& source;
extern Loader loader;
extern StagedModel& net;
extern const std::vector<Module*> blocks;
extern ParameterArena arena;
extern Optimizer& optimizer;
extern GradScaler scaler;
extern Tensor images, labels;
extern LayerKeys keys;
extern Exchange ranks;
extern const PixelScale pixel_scale;
extern const int64_t steps;
extern const uint64_t seed;
void say(const std::string& line);
