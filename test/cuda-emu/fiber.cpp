/* fiber.cpp - see fiber.h. Compiled without ThreadSanitizer's instrumentation:
 * fibers share what is here by design. */
#include "fiber.h"

#include <cstdint>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define FL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FL_ASAN 1
#endif
#endif

#ifdef FL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* There in a program that is linked with ThreadSanitizer. */
extern "C" {
void *__tsan_get_current_fiber() __attribute__((weak));
void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void *fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void *order) __attribute__((weak));
void __tsan_release(void *order) __attribute__((weak));
}

enum { NO_SYNC = 1, PAGE = 4096 };
static const std::size_t STACK = 256 * 1024; /* touched as far as it is used */

#ifdef FL_ASAN
/* Whose fiber comes next, for the first switch into it. */
static thread_local fl_fiber *from_fiber;

static void before_switch(fl_fiber *from, fl_fiber *to)
{
    from_fiber = from;
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->size);
}

static void after_switch(void *fake_stack)
{
    const void *bottom;
    std::size_t size;

    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    if (from_fiber && !from_fiber->tsan && from_fiber->size == 0) {
        from_fiber->stack = (char *)const_cast<void *>(bottom);
        from_fiber->size = size;
    }
}
#else
static void before_switch(fl_fiber *, fl_fiber *)
{
}
static void after_switch(void *)
{
}
#endif

#if defined(__x86_64__)

/* Registers that a call keeps go to the stack; then the other stack's come. */
extern "C" void fl_fiber_swap(void **save, void *to);
asm(".text\n"
    ".globl fl_fiber_swap\n"
    ".type fl_fiber_swap,@function\n"
    "fl_fiber_swap:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size fl_fiber_swap,.-fl_fiber_swap\n");

/* The stack as fl_fiber_swap() leaves it: six registers, the address to return
 * to, and one word more, so that it is aligned as after a call. */
static void prepare(fl_fiber *f, void (*body)())
{
    enum { WORDS = 8, BODY = 6 };
    void **top = reinterpret_cast<void **>(f->stack + f->size) - WORDS;

    for (int i = 0; i < WORDS; i++)
        top[i] = nullptr;
    top[BODY] = reinterpret_cast<void *>(body);
    f->sp = top;
}

static void swap(fl_fiber *from, fl_fiber *to)
{
    fl_fiber_swap(&from->sp, to->sp);
}

#else

static void prepare(fl_fiber *f, void (*body)())
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->size;
    f->context.uc_link = nullptr;
    makecontext(&f->context, body, 0);
}

static void swap(fl_fiber *from, fl_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#endif

void fl_fiber_adopt(fl_fiber *f)
{
    *f = fl_fiber();
    if (__tsan_get_current_fiber)
        f->tsan = __tsan_get_current_fiber();
}

bool fl_fiber_create(fl_fiber *f, void (*body)())
{
    void *p = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *f = fl_fiber();
    if (p == MAP_FAILED)
        return false;
    mprotect(p, PAGE, PROT_NONE); /* a stack that overflows faults */
    f->stack = static_cast<char *>(p) + PAGE;
    f->size = STACK;
    if (__tsan_create_fiber)
        f->tsan = __tsan_create_fiber(0);
    prepare(f, body);
    return true;
}

void fl_fiber_reset(fl_fiber *f, void (*body)())
{
    f->fake_stack = nullptr;
#ifdef FL_ASAN
    ASAN_UNPOISON_MEMORY_REGION(f->stack, f->size);
#endif
    if (f->tsan) {
        __tsan_destroy_fiber(f->tsan);
        f->tsan = __tsan_create_fiber(0);
    }
    prepare(f, body);
}

void fl_fiber_destroy(fl_fiber *f)
{
    if (!f->stack)
        return;
#ifdef FL_ASAN
    ASAN_UNPOISON_MEMORY_REGION(f->stack, f->size);
#endif
    if (f->tsan)
        __tsan_destroy_fiber(f->tsan);
    munmap(f->stack - PAGE, f->size + PAGE);
    *f = fl_fiber();
}

void fl_fiber_switch(fl_fiber *from, fl_fiber *to)
{
    before_switch(from, to);
    if (to->tsan)
        __tsan_switch_to_fiber(to->tsan, NO_SYNC);
    swap(from, to);
    after_switch(from->fake_stack);
}

void fl_fiber_entered()
{
    after_switch(nullptr);
}

void fl_fiber_release(void *order)
{
    if (__tsan_release)
        __tsan_release(order);
}

void fl_fiber_acquire(void *order)
{
    if (__tsan_acquire)
        __tsan_acquire(order);
}
