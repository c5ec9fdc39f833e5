/* dnnl_memory_test.c - oneDNN, which does not check all that it allocates, is
 * called only where there is memory: a product that cannot have it is
 * FLEET_ENOMEM. */
#define SUITE dnnl_memory
#include "memory_kit.h"
#include "test.h"

#include <fleet/nn.h>

#include "base/memory.h"
#include "ops/dnnl.h"

enum { M = 64, N = 512, K = 300 };

static float a[M * K], b[K * N], c[M * N], bias[N];
static fl_matmul *matmul;

static fleet_status create_product(void)
{
    const fl_matmul_spec spec = {.m = M,
                                 .n = N,
                                 .k = K,
                                 .bias = true,
                                 .activation = FLEET_LINEAR,
                                 .lda = K,
                                 .ldb = N,
                                 .ldc = N};

    return fl_matmul_create(&matmul, &spec, 1);
}

static fleet_status run_product(void)
{
    void *scratch = fl_alloc(fl_matmul_scratch(matmul));

    return scratch ? fl_matmul_run(matmul, 0, a, b, bias, c, scratch)
                   : FLEET_ENOMEM;
}

static fleet_status make_product(void)
{
    FL_TRY(create_product());
    return run_product();
}

TEST(a_product_is_computed_or_refused_with_any_memory)
{
    memory_ends ends = memory_sweep(NULL, make_product, 40 << 20, 128 << 10);

    CHECK(ends.refused > 40); /* its code, and what all share, are megabytes */
    CHECK(ends.fine > 40);
}

/* The code is there: only running is new. */
TEST(a_first_run_is_done_or_refused_with_any_memory)
{
    memory_ends ends;

    CHECK_OK(create_product());
    ends = memory_sweep(NULL, run_product, 20 << 20, 128 << 10);
    CHECK(ends.refused > 40);
    CHECK(ends.fine > 40);
    fl_matmul_destroy(matmul);
}
