// The table of one instruction set; included once, by recurrence.cpp.
#pragma once

#include "backward.hpp"
#include "forward.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
constexpr Table make_table() {
    return {forward<T>, backward<T>, factors<T>};
}

const Table table_float = make_table<float>();
const Table table_double = make_table<double>();

}  // namespace orthornn::ORTHORNN_ISA
