// What threads work in is freed if there is no memory for all of it.
#define ORTHORNN_ISA tests
#include "chain.hpp"

#include <new>

#include "check.hpp"

namespace orthornn {

void check_memory() {
    static int alive = 0;
    struct Counted {
        Counted() { ++alive; }
        ~Counted() { --alive; }
    };
    const auto make = [](int i) {
        if (i == 2) throw std::bad_alloc();
        return new Counted;
    };
    bool thrown = false;
    try {
        const tests::Parts<Counted> parts(4, make);
    } catch (const std::bad_alloc&) {
        thrown = true;
    }
    ++checks;
    if (!thrown || alive) {
        ++failures;
        std::printf("FAILED: %d parts are left where memory runs out\n", alive);
    }
}

}  // namespace orthornn
