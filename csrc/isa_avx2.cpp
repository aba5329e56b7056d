#define ORTHORNN_ISA avx2
#include "kernels_table.hpp"
#include "reflections.hpp"
