/* launch.h - how a kernel is started on the emulated device: at once, or when
 * its stream is waited for; block by block, on the caller's thread.
 *
 * A fiber runs threads of a block one after the other until one waits, at a
 * barrier or for other lanes; then the next fiber goes on with the threads that
 * have not begun. So a kernel without barrier or shuffle is a plain loop on one
 * stack.
 */
#pragma once

#include <tuple>

#include "runtime.h"

struct fl_emu_launch {
    const char *kernel; /* its name */
    dim3 grid, block;
    std::size_t shared;         /* bytes of the block's own choice */
    void (*thread)(void *call); /* one thread of it */
    void *call;
};

/* What is wrong stays for cudaGetLastError(). */
void fl_emu_run(const fl_emu_launch *l);

/* The memory that a launch asked for. */
void *fl_emu_shared();

template <class... P> struct fl_emu_call {
    void (*kernel)(P...);
    std::tuple<P...> argument;
};

template <class... P> void fl_emu_thread(void *call)
{
    fl_emu_call<P...> *c = static_cast<fl_emu_call<P...> *>(call);

    std::apply(c->kernel, c->argument);
}

template <class... P, class... A>
void fl_emu_start(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                  std::size_t shared, cudaStream_t stream, A... argument)
{
    fl_emu_call<P...> call = {kernel, std::tuple<P...>(argument...)};

    fl_emu_queue(stream, [=]() mutable {
        fl_emu_launch l = {name, grid, block, shared, &fl_emu_thread<P...>,
                           &call};

        fl_emu_run(&l);
    });
}

/* In place of kernel<<<grid, block, shared, stream>>>(...). */
#define FL_START_KERNEL(kernel, grid, block, shared, stream, ...)              \
    fl_emu_start(#kernel, kernel, grid, block, shared, stream, __VA_ARGS__)
#define FL_BLOCK_MEMORY(type, name)                                            \
    type *name = static_cast<type *>(fl_emu_shared())
