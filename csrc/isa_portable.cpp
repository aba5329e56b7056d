#define ORTHORNN_ISA portable
#include "kernels_table.hpp"
#include "reflections.hpp"
