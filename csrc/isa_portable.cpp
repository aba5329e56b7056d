#define ORTHORNN_ISA portable
#include "kernels_table.hpp"
