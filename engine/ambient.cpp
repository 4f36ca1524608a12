#include "engine/ambient.h"

#include "engine/module.h"

namespace hs {
namespace {

constexpr const char* names[] = {"f32", "tf32", "f16", "bf16"};

}  // namespace

const char* name(Precision precision) { return names[static_cast<int>(precision)]; }

Autocast::Autocast(Precision precision) {
  ambient().tf32 = precision == Precision::tf32;
  ambient().autocast = precision == Precision::f16    ? DType::f16
                       : precision == Precision::bf16 ? DType::bf16
                                                      : DType::f32;
}

Autocast::Autocast(Precision precision, ParameterArena& arena) : Autocast(precision) {
  if (ambient().autocast != DType::f32) arena.cast_parameters(ambient().autocast);
}

}  // namespace hs
