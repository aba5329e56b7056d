// The kernels of one transition for all steps; compiled once for each instruction set.
#include "kernels_table.hpp"
