// The kernels of the delta rule; compiled once for each instruction set.
#include "delta_products.hpp"

namespace orthornn::ORTHORNN_ISA {
namespace {

template <class T>
void forward_of(const DeltaForward& call) {
    (call.in.products ? delta_forward_by_products<T> : delta_forward<T>)(call);
}

}  // namespace

const DeltaTable delta_float{forward_of<float>, delta_backward<float>};
const DeltaTable delta_double{forward_of<double>, delta_backward<double>};

}  // namespace orthornn::ORTHORNN_ISA
