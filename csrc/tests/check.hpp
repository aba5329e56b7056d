// What the C++ tests share: counted checks, arrays of exactly the size that a kernel may touch, and random numbers.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "kernels.hpp"
#include "reference.hpp"

namespace orthornn {

using reference::Numbers;

inline int failures = 0, checks = 0;

template <class T>
struct Array {
    std::unique_ptr<T[]> data;
    i64 size;
    explicit Array(i64 n) : data(new T[static_cast<std::size_t>(n)]), size(n) {
        for (i64 i = 0; i < n; ++i) data[i] = std::numeric_limits<T>::quiet_NaN();
    }
    explicit Array(const Numbers& from) : Array(static_cast<i64>(from.size())) {
        for (i64 i = 0; i < size; ++i) data[i] = static_cast<T>(from[i]);
    }
    T* get() const { return size ? data.get() : nullptr; }
};

template <class T>
void close(const char* what, const std::string& where, const Array<T>& found, const Numbers& expected, double operations) {
    ++checks;
    double largest = 0, worst = 0;
    for (double x : expected) largest = std::fmax(largest, std::fabs(x));
    for (i64 i = 0; i < found.size; ++i) {
        const double error = std::fabs(static_cast<double>(found.data[i]) - expected[static_cast<std::size_t>(i)]);
        worst = error <= worst ? worst : error;  // a NaN counts
    }
    const double bound = 8 * std::numeric_limits<T>::epsilon() * operations * (1 + largest);
    if (!(worst <= bound)) {
        ++failures;
        std::printf("FAILED %s: %s is off by %g, allowed %g\n", where.c_str(), what, worst, bound);
    }
}

inline Numbers normal(std::mt19937& random, i64 count, double scale = 1) {
    std::normal_distribution<double> draw;
    Numbers x(static_cast<std::size_t>(count));
    for (double& v : x) v = static_cast<float>(scale * draw(random));  // exact in both types
    return x;
}

// The kernels with a transition for every step, and online learning: per_step.cpp.
void check_per_step(Isa isa);
void check_online();
// What is freed where memory runs out: memory.cpp.
void check_memory();

}  // namespace orthornn
