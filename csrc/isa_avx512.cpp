#define ORTHORNN_ISA avx512
#include "kernels_table.hpp"
#include "reflections.hpp"
