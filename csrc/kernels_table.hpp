// The table of one instruction set; included once by each isa_*.cpp.
#pragma once

#include "factors.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
constexpr Table make_table() {
    return {forward<T>, backward<T>, gradient<T>, input_gradient<T>, factors<T>, reflector_gradient<T>};
}

const Table table_float = make_table<float>();
const Table table_double = make_table<double>();

}  // namespace orthornn::ORTHORNN_ISA
