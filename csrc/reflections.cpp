// The kernels of input-dependent reflections; compiled once for each instruction set.
#include "reflections.hpp"

namespace orthornn::ORTHORNN_ISA {

const ReflectionTable reflections_float{reflections_forward<float>, reflections_backward<float>};
const ReflectionTable reflections_double{reflections_forward<double>, reflections_backward<double>};

}  // namespace orthornn::ORTHORNN_ISA
