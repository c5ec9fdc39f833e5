/* fiber.h - stacks to switch between, for threads of an emulated block: without
 * a system call on x86-64, by ucontext elsewhere. Sanitizers are told.
 *
 * Switches order nothing for ThreadSanitizer: whoever orders two fibers says so
 * by fl_fiber_release() and fl_fiber_acquire(), as a barrier does. So a kernel
 * that forgets a barrier is a race there.
 */
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct fl_fiber {
    void *sp;         /* x86-64: where its registers lie */
    char *stack;      /* NULL: the stack of who runs the block */
    std::size_t size; /* of the stack */
    void *fake_stack; /* AddressSanitizer's */
    void *tsan;
#if !defined(__x86_64__)
    ucontext_t context;
#endif
};

/* Let f be the stack that runs now. */
void fl_fiber_adopt(fl_fiber *f);

/* A stack on which body() will run; it must not return. false: no memory. */
bool fl_fiber_create(fl_fiber *f, void (*body)());

/* As after create, whatever it was in the middle of. */
void fl_fiber_reset(fl_fiber *f, void (*body)());
void fl_fiber_destroy(fl_fiber *f);
void fl_fiber_switch(fl_fiber *from, fl_fiber *to);

/* What a fiber has to do first in body(). */
void fl_fiber_entered();

void fl_fiber_release(void *order);
void fl_fiber_acquire(void *order);
