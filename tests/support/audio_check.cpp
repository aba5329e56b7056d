// Loads a network for audio and runs it: `check FILE blocks|samples|silence|copies|rate=HZ` reads floats from standard input and writes
// floats. With ORTHORNN_NET defined as the type. Between load and end malloc and free end the program, and on Linux so does
// every system call.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "orthornn_audio.hpp"

#if defined(__linux__)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool forbidden = false;

extern "C" void* __libc_malloc(std::size_t);
extern "C" void __libc_free(void*);
extern "C" void* malloc(std::size_t size)
{
    if (forbidden)
        __builtin_trap();
    return __libc_malloc(size);
}
extern "C" void free(void* memory)
{
    if (forbidden)
        __builtin_trap();
    __libc_free(memory);
}

using Net = ORTHORNN_NET;
static Net net, second, third;

// Each sample by another object, which was copied or moved from the one before; in place, with empty blocks in between.
static void copy_along(const float* x, float* y, std::size_t frames)
{
    if constexpr (Net::inputs == Net::outputs) {
        std::memcpy(y, x, frames * Net::inputs * sizeof(float));
        Net* const nets[] = {&net, &second, &third};
        for (std::size_t t = 0; t < frames; t++) {
            Net &from = *nets[t % 3], &to = *nets[(t + 1) % 3];
            if (t % 2 == 0)
                to = from;
            else
                to = static_cast<Net&&>(from);
            from.reset();
            to.process(nullptr, nullptr, 0);
            to.process(y + t * Net::inputs, y + t * Net::outputs, 1);
            const Net copied(to);
            to = copied;
        }
    }
}

int main(int count, char** words)
{
    if (count != 3)
        return 2;
    std::ifstream file(words[1]);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    try {
        orthornn::from_json(net, text);
    } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 3;
    }
    if (std::strncmp(words[2], "rate=", 5) == 0) {
        std::fputs(orthornn::rate_warning(net, std::atof(words[2] + 5)).c_str(), stderr);
        return 0;
    }
    std::vector<float> x;
    float buffer[1024];
    for (std::size_t got; (got = std::fread(buffer, sizeof(float), 1024, stdin)) > 0;)
        x.insert(x.end(), buffer, buffer + got);
    const std::size_t frames = x.size() / Net::inputs;
    std::vector<float> y(frames * Net::outputs);
    const bool blocks = std::strcmp(words[2], "blocks") == 0, wrong = std::strcmp(words[2], "allocate") == 0;

    forbidden = true;
#if defined(__linux__)
    if (std::strcmp(words[2], "silence") != 0)
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);  // from here on: read, write and exit, else SIGKILL
#endif
    if (wrong)
        delete[] new int[frames + 1];
    if (std::strcmp(words[2], "copies") == 0) {
        copy_along(x.data(), y.data(), frames);
    } else if (blocks) {
        std::size_t t = 0, length = 1;  // of every length
        while (t < frames) {
            const std::size_t n = length < frames - t ? length : frames - t;
            net.process(x.data() + t * Net::inputs, y.data() + t * Net::outputs, n);
            t += n;
            length = length % 97 + 1;
        }
    } else {
        const orthornn::FlushDenormals flushing;
        for (std::size_t t = 0; t < frames; t++)
            net.step(x.data() + t * Net::inputs, y.data() + t * Net::outputs);
    }
#if defined(__linux__)
    const char* at = reinterpret_cast<const char*>(y.data());
    for (std::size_t left = y.size() * sizeof(float); left > 0;) {
        const ssize_t wrote = write(1, at, left);
        if (wrote <= 0)
            syscall(SYS_exit, 4);
        at += wrote;
        left -= static_cast<std::size_t>(wrote);
    }
    syscall(SYS_exit, 0);
#else
    std::fwrite(y.data(), sizeof(float), y.size(), stdout);
    std::fflush(stdout);
#endif
    return 0;
}
