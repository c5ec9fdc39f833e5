/* in_order_test.c - threads that work on batches side by side: what they hand
 * on is in the batches' order, and a failure ends waits for data. */
#define SUITE in_order
#include "data_kit.h"
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "fleet/predict/in_order.h"

enum { BATCHES = 6 };

static const char lines[] = "1 0\n1 1\n1 2\n1 3\n1 4\n1 5\n"
                            "1 6\n1 7\n1 8\n1 9\n1 10\n1 11\n";
static const fleet_slot slot = {.name = "x", .dtype = FLEET_FLOAT32, .dim = 1};

static atomic_int n_worked;
static int64_t order[BATCHES];
static int n_handed;

/* The first batch is the last one that is ready. */
static fleet_status work_late(void *worker, const fl_batch *b)
{
    (void)worker;
    while (b->index == 0 && atomic_load(&n_worked) == 0)
        sched_yield();
    atomic_fetch_add(&n_worked, 1);
    return FLEET_OK;
}

static fleet_status note_order(void *worker, const fl_batch *b)
{
    (void)worker;
    CHECK(n_handed < BATCHES);
    order[n_handed++] = b->index;
    return FLEET_OK;
}

TEST_LIMIT(a_batch_that_is_late_is_handed_on_in_its_turn, 30)
{
    const char *path = test_file("lines", lines);
    fl_stream_spec spec = data_spec(FLEET_MULTISLOT, &slot, 1, &path, 1);
    void *workers[2] = {NULL};
    fl_in_order o;

    CHECK_OK(fl_in_order_open(&o, &spec, &path, 1, 2, 2));
    CHECK_OK(fl_in_order_run(&o, workers, work_late, note_order));
    fl_in_order_close(&o);
    CHECK_INT(n_handed, BATCHES);
    for (int i = 0; i < BATCHES; i++)
        CHECK_INT(order[i], i);
}

static fleet_status fail(void *worker, const fl_batch *b)
{
    (void)worker;
    return fl_fail(FLEET_ENUMERIC, "batch %lld is bad", (long long)b->index);
}

/* The other thread waits for lines that never come. */
TEST_LIMIT(a_failure_ends_a_wait_for_data, 30)
{
    const char *path = test_path("fifo");
    fl_stream_spec spec = data_spec(FLEET_MULTISLOT, &slot, 1, &path, 1);
    void *workers[2] = {NULL};
    fl_in_order o;
    int fd;

    spec.any_file = true;
    CHECK(mkfifo(path, 0600) == 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, lines, 12) == 12);
    CHECK_OK(fl_in_order_open(&o, &spec, &path, 1, 2, 2));
    CHECK_FAILS(fl_in_order_run(&o, workers, fail, note_order), FLEET_ENUMERIC,
                "batch 0 is bad");
    fl_in_order_close(&o);
    close(fd);
}
