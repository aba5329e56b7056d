// The kernels of the delta rule; compiled once for each instruction set.
#include "delta_products_backward.hpp"

namespace orthornn::ORTHORNN_ISA {
namespace {

template <class T>
void forward_of(const DeltaForward& call) {
    (call.in.products ? delta_forward_by_products<T> : delta_forward<T>)(call);
}

template <class T>
void backward_of(const DeltaBackward& call) {
    (call.in.products ? delta_backward_by_products<T> : delta_backward<T>)(call);
}

}  // namespace

const DeltaTable delta_float{forward_of<float>, backward_of<float>};
const DeltaTable delta_double{forward_of<double>, backward_of<double>};

}  // namespace orthornn::ORTHORNN_ISA
