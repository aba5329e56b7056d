// The kernels of the delta rule; compiled once for each instruction set.
#include "delta.hpp"

namespace orthornn::ORTHORNN_ISA {

const DeltaTable delta_float{delta_forward<float>, delta_backward<float>};
const DeltaTable delta_double{delta_forward<double>, delta_backward<double>};

}  // namespace orthornn::ORTHORNN_ISA
