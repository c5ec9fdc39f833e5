/* context.c - what the parts of a handle share, made from the environment. */
#include "runtime/device/context.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/simd/simd.h"
#include "runtime/device/trace.h"
#include "base/pool.h"

int fl_thread_count(fl_log *log)
{
    static const char *const variable[] = {"FLEET_NUM_THREADS",
                                           "OMP_NUM_THREADS"};
    for (int i = 0; i < 2; i++) {
        const char *text = getenv(variable[i]);
        int n = text ? atoi(text) : 0;

        if (n > 0 && n <= FL_MAX_THREAD)
            return n;
        if (text && *text)
            FL_WARN(log, "%s is \"%.40s\": expected 1 to %d, so it is ignored",
                    variable[i], text, FL_MAX_THREAD);
    }
    return fl_cpu_count();
}

/* "vbmi2" is for the readers' kernels alone. */
static void check_isa(fl_log *log)
{
    const char *wanted = getenv("FLEET_ISA"), *is = fl_simd_best()->isa;

    bool bf16 =
        wanted && strcmp(wanted, "avx512_bf16") == 0 && fl_simd_has_bf16();

    if (wanted && !bf16 && strcmp(wanted, is) != 0 &&
        strcmp(wanted, "vbmi2") != 0)
        FL_WARN(log,
                "FLEET_ISA is \"%.40s\", which this processor or this library "
                "does not have: it is ignored, %s is used",
                wanted, is);
}

fleet_status fl_context_init(fl_context *c, uint64_t seed, int n_thread)
{
    check_isa(&c->log);
    if (n_thread == 0)
        n_thread = fl_thread_count(&c->log);
    if (n_thread > FL_MAX_THREAD)
        n_thread = FL_MAX_THREAD;
    c->seed = seed;
    c->fork_generation = fl_fork_generation();
    return n_thread > 1 ? fl_pool_create(&c->pool, n_thread) : FLEET_OK;
}

void fl_context_done(fl_context *c)
{
    if (c->fork_generation == fl_fork_generation())
        fl_pool_destroy(c->pool);
    c->pool = NULL;
    fl_trace_close(c->trace);
    c->trace = NULL;
}

fleet_status fl_context_check(const fl_context *c)
{
    if (!c->survives_fork && c->fork_generation != fl_fork_generation())
        return fl_fail(FLEET_ESTATE,
                       "this handle was made before fork(): a child process "
                       "needs one of its own");
    return FLEET_OK;
}
