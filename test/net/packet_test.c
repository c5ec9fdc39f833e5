/* packet_test.c - packets: aligned frames, references from many threads, memory
 * that is used again and goes back at the end. */
#define _GNU_SOURCE
#define SUITE packet
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "net/packet.h"

static fl_packet_pool *new_pool(size_t most)
{
    fl_packet_pool *pool;

    CHECK_OK(fl_packet_pool_create(&pool, most));
    return pool;
}

static fl_packet *new_packet(fl_packet_pool *pool, const size_t *size, int n)
{
    fl_packet *p;

    CHECK_OK(fl_packet_create(pool, &p));
    for (int i = 0; i < n; i++) {
        void *data = fl_packet_add(p, size[i]);

        CHECK(data != NULL);
        memset(data, i, size[i]);
    }
    return p;
}

TEST(frames_are_aligned_apart_and_as_long_as_asked)
{
    const size_t size[] = {0, 1, 63, 64, 65, 80, 81, 5000, 1 << 20, 3000001};
    enum { N = sizeof size / sizeof *size };
    fl_packet_pool *pool = new_pool(1 << 20);
    fl_packet *p = new_packet(pool, size, N);
    size_t all = 0;

    CHECK_INT(p->n_frame, N);
    for (int i = 0; i < N; i++) {
        const uint8_t *byte = p->frame[i].data;

        CHECK_INT((uintptr_t)byte % FL_CACHE_LINE, 0);
        CHECK_INT(p->frame[i].size, size[i]);
        for (size_t k = 0; k < size[i]; k++)
            if (byte[k] != i)
                test_fail(__FILE__, __LINE__, "frame %d, byte %zu", i, k);
        all += size[i];
    }
    CHECK_INT(p->bytes, all);
    fl_packet_drop(p);
    fl_packet_pool_destroy(pool);
}

TEST(a_packet_takes_as_many_frames_as_it_may_and_no_more)
{
    fl_packet_pool *pool = new_pool(1 << 20);
    fl_packet *p = new_packet(pool, NULL, 0);

    for (int i = 0; i < FL_MOST_FRAME; i++) {
        int *data = fl_packet_add(p, sizeof i);

        CHECK(data != NULL);
        *data = i;
    }
    CHECK(fl_packet_add(p, 4) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "512 frames at most");
    for (int i = 0; i < FL_MOST_FRAME; i++)
        CHECK_INT(*(int *)p->frame[i].data, i);
    fl_packet_drop(p);
    fl_packet_pool_destroy(pool);
}

static void step(fl_packet_pool *pool)
{
    const size_t size[40] = {64, 1700000, 9 * 4 * 26000, 8 * 26000, 4, 100000};
    fl_packet *p = new_packet(pool, size, 40), *q = new_packet(pool, size, 6);

    fl_packet_drop(p);
    fl_packet_drop(q);
}

TEST(a_step_like_the_last_one_allocates_nothing)
{
    fl_packet_pool *pool = new_pool(16 << 20);
    int64_t before;

    step(pool);
    before = fl_memory_count();
    for (int i = 0; i < 100; i++)
        step(pool);
    CHECK_INT(fl_memory_count(), before);
    fl_packet_pool_destroy(pool);
}

TEST(a_frame_that_was_made_shorter_is_used_again_as_long_as_it_was)
{
    const size_t size = 5000;
    fl_packet_pool *pool = new_pool(1 << 20);
    int64_t before;

    for (int i = 0; i < 3; i++) {
        fl_packet *p = new_packet(pool, &size, 1);

        p->frame[0].size = 10;
        fl_packet_drop(p);
        if (i == 0)
            before = fl_memory_count();
    }
    CHECK_INT(fl_memory_count(), before);
    fl_packet_pool_destroy(pool);
}

TEST(idle_memory_is_bounded)
{
    const size_t size = 1 << 20;
    fl_packet_pool *pool = new_pool(5 << 19); /* two and a half */
    fl_packet *p[8];
    int64_t before;

    for (int i = 0; i < 8; i++)
        p[i] = new_packet(pool, &size, 1);
    for (int i = 0; i < 8; i++)
        fl_packet_drop(p[i]);
    before = fl_memory_count();
    for (int i = 0; i < 8; i++)
        p[i] = new_packet(pool, &size, 1);
    CHECK_INT(fl_memory_count() - before, 6);
    for (int i = 0; i < 8; i++)
        fl_packet_drop(p[i]);
    fl_packet_pool_destroy(pool);
}

TEST(the_last_reference_gives_a_packet_back)
{
    const size_t size = 100;
    fl_packet_pool *pool = new_pool(1 << 20);
    fl_packet *p = new_packet(pool, &size, 1), *q;

    CHECK(fl_packet_keep(p) == p);
    fl_packet_drop(p);
    CHECK_INT(*(uint8_t *)p->frame[0].data, 0);
    q = new_packet(pool, &size, 1);
    CHECK(q != p);
    fl_packet_drop(p);
    fl_packet_drop(q);
    fl_packet_drop(NULL);
    fl_packet_pool_destroy(pool);
    fl_packet_pool_destroy(NULL);
}

TEST(packets_outlive_their_pool)
{
    const size_t size[] = {100, 1 << 20};
    fl_packet_pool *pool = new_pool(1 << 20);
    fl_packet *p = new_packet(pool, size, 2), *q = new_packet(pool, size, 1);

    fl_packet_pool_destroy(pool);
    CHECK(fl_packet_add(p, 1000) != NULL);
    fl_packet_drop(q);
    CHECK_INT(*(uint8_t *)p->frame[1].data, 1);
    fl_packet_drop(p); /* what is lost now fails the test */
}

TEST(a_size_that_cannot_be_is_refused)
{
    fl_packet_pool *pool = new_pool(1 << 20);
    fl_packet *p = new_packet(pool, NULL, 0);

    CHECK(fl_packet_add(p, SIZE_MAX) == NULL);
    CHECK_INT(fleet_last_status(), FLEET_ENOMEM);
    CHECK(fl_packet_add(p, SIZE_MAX / 2) == NULL);
    CHECK_INT(p->n_frame, 0);
    fl_packet_drop(p);
    fl_packet_pool_destroy(pool);
}

static fleet_status build(void)
{
    fl_packet_pool *pool;
    fl_packet *p;
    fleet_status status;

    FL_TRY(fl_packet_pool_create(&pool, 1 << 20));
    status = fl_packet_create(pool, &p);
    for (int i = 0; status == FLEET_OK && i < 40; i++)
        if (!fl_packet_add(p, 1000))
            status = fl_last_code();
    if (status != FLEET_OK)
        CHECK_STATUS(status, FLEET_ENOMEM);
    fl_packet_drop(p);
    fl_packet_pool_destroy(pool);
    return status;
}

TEST(memory_that_runs_out_is_reported_and_nothing_is_lost)
{
    fleet_status status;
    int n = 0;

    do {
        fl_memory_fail_at(++n, false);
        status = build();
    } while (status == FLEET_ENOMEM);
    fl_memory_fail_at(0, false);
    CHECK_OK(status);
    CHECK(n > 40);
}

typedef struct crowd {
    fl_packet_pool *pool;
    fl_packet *shared;
    unsigned seed;
} crowd;

static void *make_and_drop(void *arg)
{
    const crowd *c = arg;
    unsigned seed = c->seed;

    for (int i = 0; i < 2000; i++) {
        const size_t size[] = {64, (size_t)rand_r(&seed) % 5000};
        fl_packet *p = new_packet(c->pool, size, 2);

        fl_packet_keep(c->shared);
        CHECK_INT(*(uint8_t *)c->shared->frame[1].data, 1);
        fl_packet_drop(c->shared);
        fl_packet_drop(p);
    }
    return NULL;
}

TEST(threads_may_share_a_pool_and_a_packet)
{
    const size_t size[] = {10, 10};
    fl_packet_pool *pool = new_pool(1 << 16);
    fl_packet *p = new_packet(pool, size, 2);
    pthread_t thread[4];
    crowd c[4];

    for (unsigned i = 0; i < 4; i++) {
        c[i] = (crowd){pool, p, i + 1};
        CHECK_INT(pthread_create(&thread[i], NULL, make_and_drop, &c[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_INT(p->refs, 1);
    fl_packet_drop(p);
    fl_packet_pool_destroy(pool);
}

TEST(a_child_process_gets_no_packet_from_its_parents_pool)
{
    fl_packet_pool *pool = new_pool(1 << 16);
    fl_packet *p = new_packet(pool, NULL, 0), *q;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        status = (int)fl_packet_create(pool, &q);
        fl_packet_drop(p);
        fl_packet_pool_destroy(pool);
        _exit(status == (int)FLEET_ESTATE ? 0 : 1);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    fl_packet_drop(p);
    fl_packet_pool_destroy(pool);
}
