// A page on which one draws a digit, and sees what a trained model makes of it.
#pragma once

#include <string>

#include "models/files/model_file.h"

namespace hs::bench::report {

// bench/report/drawing.html with the model's weights inside; its script computes what predict does, within 1e-4. Throws
// Error (usage): no mnist_cnn and no mlp, or one of colour images.
std::string drawing_page(const LoadedModel& loaded);

}  // namespace hs::bench::report
