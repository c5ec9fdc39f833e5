/* sim_fiber.c - stacks of workers, between which one thread goes. */
#define SUITE sim_kit
#include "sim_internal.h"
#include "test.h"

#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(save, bottom, size)                     \
    ((void)(save), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(fake, bottom, size)                    \
    ((void)(fake), (void)(bottom), (void)(size))
#endif

enum { STACK_BYTES = 256 << 10 };

static void *stacks[SIM_MOST_PROCESS]; /* kept from run to run */
static void (*main_of)(sim_worker *w);

void sim_fiber_resume(sim_worker *w)
{
    sim *s = w->s;

    __sanitizer_start_switch_fiber(&s->main_fake, w->stack, STACK_BYTES);
    CHECK(swapcontext(&s->main, &w->context) == 0);
    __sanitizer_finish_switch_fiber(s->main_fake, NULL, NULL);
}

void sim_fiber_leave(sim_worker *w)
{
    sim *s = w->s;

    __sanitizer_start_switch_fiber(w->returned ? NULL : &w->fake_stack,
                                   s->main_bottom, s->main_size);
    swapcontext(&w->context, &s->main);
    __sanitizer_finish_switch_fiber(w->fake_stack, &s->main_bottom,
                                    &s->main_size);
}

static void begin(unsigned high, unsigned low)
{
    sim_worker *w = (sim_worker *)((uintptr_t)high << 32 | low);
    sim *s = w->s;

    __sanitizer_finish_switch_fiber(NULL, &s->main_bottom, &s->main_size);
    main_of(w);
    w->returned = true;
    sim_fiber_leave(w);
}

void sim_fiber_make(sim_worker *w, void (*main)(sim_worker *w))
{
    uintptr_t p = (uintptr_t)w;

    main_of = main;
    if (!stacks[w->process])
        stacks[w->process] = malloc(STACK_BYTES);
    w->stack = stacks[w->process];
    CHECK(w->stack != NULL && getcontext(&w->context) == 0);
    w->context.uc_stack.ss_sp = w->stack;
    w->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&w->context, (void (*)(void))begin, 2, (unsigned)(p >> 32),
                (unsigned)p);
    w->has_fiber = true;
    w->returned = false;
}
