// The kernels of rotations over irregular time; compiled once for each instruction set.
#include "irregular.hpp"

namespace orthornn::ORTHORNN_ISA {

const IrregularTable irregular_float{irregular_forward<float>, irregular_backward<float>};
const IrregularTable irregular_double{irregular_forward<double>, irregular_backward<double>};

}  // namespace orthornn::ORTHORNN_ISA
