/* memory_test.c - blocks, what the system still has, threads' own memory,
 * arenas. */
#define SUITE memory
#include "memory_kit.h"
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"

static bool is_zero(const void *p, size_t size)
{
    const char *at = p;

    for (size_t i = 0; i < size; i++)
        if (at[i])
            return false;
    return true;
}

TEST(blocks_are_zero_and_lie_on_cache_lines)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4000, (2 << 20) + 5};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = fl_alloc(sizes[i]);

        CHECK(p != NULL);
        CHECK_INT((uintptr_t)p % FL_CACHE_LINE, 0);
        CHECK(is_zero(p, sizes[i]));
        memset(p, 1, sizes[i]);
        fl_free(p);
    }
    fl_free(NULL);
}

TEST(a_size_that_cannot_be_is_no_memory)
{
    CHECK(fl_alloc(SIZE_MAX) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "out of memory");
    CHECK(fl_alloc_array(SIZE_MAX / 8 + 2, 8) == NULL); /* 8, cut off */
    CHECK_CONTAINS(fleet_last_error(), "out of memory");
}

static bool works(void)
{
    void *p = fl_alloc(10);

    fl_free(p);
    return p != NULL;
}

/* What the system still has is left to libraries that end the process without
 * it. A test's process has one thread, so nobody else takes any. */
TEST(memory_is_refused_before_the_last_is_taken)
{
    enum { ROOM = 6 << 20 };
    struct block {
        struct block *next;
    } *first = NULL, *b;
    size_t got = 0;

    memory_need_limits();
    memory_limit_to(FL_SPARE_BYTES + ROOM);
    CHECK_OK(fl_memory_spare(FL_SPARE_BYTES, "a test"));
    CHECK_FAILS(fl_memory_spare(FL_SPARE_BYTES + ROOM + 1, "a test"),
                FLEET_ENOMEM, "out of memory: a test may take ");
    CHECK(fl_alloc(ROOM + (2 << 20)) == NULL);
    CHECK_INT(fl_last_code(), FLEET_ENOMEM);
    while ((b = fl_alloc(20000))) {
        b->next = first;
        first = b;
        got += 20000;
    }
    CHECK(got > ROOM - (3 << 20) && got < ROOM + (2 << 20));
    for (; first; first = b) {
        b = first->next;
        fl_free(first);
    }
}

/* KB of address space. */
static long mapped(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) >> 10);
}

typedef struct small_blocks {
    sem_t go, done;
} small_blocks;

static void *take_small_blocks(void *arg)
{
    small_blocks *s = arg;
    void *block[1000];

    sem_wait(&s->go);
    for (int i = 0; i < 1000; i++)
        CHECK(block[i] = malloc(24));
    sem_post(&s->done);
    for (int i = 0; i < 1000; i++)
        free(block[i]);
    return NULL;
}

/* What a thread maps at its first block is mapped when it has been started. */
TEST(a_thread_starts_with_its_arena)
{
    small_blocks s;
    pthread_t thread;
    long before;

    memory_need_limits();
    CHECK(sem_init(&s.go, 0, 0) == 0 && sem_init(&s.done, 0, 0) == 0);
    CHECK_OK(fl_thread_start(&thread, take_small_blocks, &s, "a test"));
    before = mapped();
    sem_post(&s.go);
    sem_wait(&s.done);
    CHECK(mapped() - before < 1 << 10);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *nothing(void *arg)
{
    return arg;
}

/* Its 24 bytes would take a page each, and try for 64 MB each time. */
TEST(a_thread_without_an_arena_is_not_started)
{
    pthread_t thread;

    memory_need_limits();
    memory_limit_to(40 << 20);
    CHECK_FAILS(fl_thread_start(&thread, nothing, NULL, "a test"), FLEET_ENOMEM,
                "cannot start a thread for a test: out of memory: no 64 MB of "
                "address space");
}

static void *spare_of_thread(void *status)
{
    *(fleet_status *)status = fl_thread_spare(1, "a test");
    return NULL;
}

/* A host's thread may be without one. */
TEST(a_thread_without_an_arena_has_nothing_to_spare)
{
    fleet_status status;
    pthread_t thread;

    memory_need_limits();
    memory_limit_to(40 << 20);
    CHECK(pthread_create(&thread, NULL, spare_of_thread, &status) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(status, FLEET_ENOMEM);
}

TEST(the_nth_allocation_fails_on_request)
{
    fl_memory_fail_at(3, false);
    CHECK(works() && works());
    CHECK(!works());
    CHECK_TEXT(fleet_last_error(), "out of memory: 10 bytes");
    CHECK(works());
    CHECK_INT(fl_memory_count(), 4);
}

TEST(a_sticky_request_fails_all_that_follow)
{
    fl_memory_fail_at(2, true);
    CHECK(works() && !works() && !works());
    fl_memory_fail_at(0, false);
    CHECK(works());
    CHECK_INT(fl_memory_count(), 1);
}

TEST(growing_keeps_what_was_there_and_zeroes_the_rest)
{
    int64_t *a = NULL;
    size_t capacity = 0;

    for (size_t n = 1; n <= 10000; n++) {
        size_t before = capacity;

        CHECK_OK(fl_grow(&a, &capacity, n, sizeof *a));
        CHECK(capacity >= n);
        if (capacity > before)
            CHECK(is_zero(a + before, (capacity - before) * sizeof *a));
        a[n - 1] = (int64_t)n;
    }
    for (size_t i = 0; i < 10000; i++)
        CHECK_INT(a[i], i + 1);
    fl_free(a);
}

TEST(growing_by_half_needs_few_allocations)
{
    char *a = NULL;
    size_t capacity = 0;

    fl_memory_fail_at(0, false);
    for (size_t n = 1; n <= 1000000; n++)
        CHECK_OK(fl_grow(&a, &capacity, n, 1));
    CHECK(fl_memory_count() < 40);
    fl_free(a);
}

TEST(growing_that_fails_leaves_the_array_as_it_was)
{
    int *a = NULL;
    size_t capacity = 0;

    CHECK_OK(fl_grow(&a, &capacity, 8, sizeof *a));
    a[7] = 77;
    int *before = a;
    fl_memory_fail_at(1, false);
    CHECK_STATUS(fl_grow(&a, &capacity, 9, sizeof *a), FLEET_ENOMEM);
    CHECK(a == before && capacity == 8 && a[7] == 77);
    CHECK_STATUS(fl_grow(&a, &capacity, SIZE_MAX / 2, sizeof *a), FLEET_ENOMEM);
    CHECK(a == before && capacity == 8);
    fl_free(a);
}

TEST(copies_of_texts_are_ended)
{
    char *all = fl_strdup("wide"), *part = fl_strndup("deep", 2);

    CHECK_TEXT(all, "wide");
    CHECK_TEXT(part, "de");
    fl_free(all);
    fl_free(part);
}

/* --- arena --------------------------------------------------------------- */

TEST(an_arena_gives_zeroed_pieces_that_do_not_meet)
{
    enum { N = 2000 };
    fl_arena a = {NULL};
    unsigned char *p[N];

    for (int i = 0; i < N; i++) {
        size_t size = (size_t)(i * 37 % 300);

        p[i] = fl_arena_alloc(&a, size);
        CHECK(p[i] != NULL && (uintptr_t)p[i] % 16 == 0);
        CHECK(is_zero(p[i], size));
        memset(p[i], i % 251, size);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i * 37 % 300; j++)
            CHECK_INT(p[i][j], i % 251);
    fl_arena_done(&a);
    CHECK(a.chunk == NULL);
}

TEST(an_arena_gives_pieces_larger_than_its_chunks)
{
    fl_arena a = {NULL};
    char *small = fl_arena_strdup(&a, "before");
    char *large = fl_arena_alloc(&a, 1 << 20);

    CHECK(large != NULL);
    memset(large, 1, 1 << 20);
    CHECK_TEXT(fl_arena_format(&a, "%s and %d", "after", 2), "after and 2");
    CHECK_TEXT(fl_arena_copy(&a, "copied", 7), "copied");
    CHECK_TEXT(small, "before");
    fl_arena_done(&a);
}

/* A size that rounding, or the chunk's head, would make a small one. */
TEST(an_arena_has_no_room_for_more_than_there_can_be)
{
    fl_arena a = {NULL};

    for (size_t less = 0; less < 64; less++) {
        fl_error_clear();
        CHECK(fl_arena_alloc(&a, SIZE_MAX - less) == NULL);
        CHECK_STATUS(fleet_last_status(), FLEET_ENOMEM);
    }
    CHECK_TEXT(fl_arena_strdup(&a, "x"), "x");
    fl_arena_done(&a);
}

TEST(an_arena_without_memory_works_again_later)
{
    fl_arena a = {NULL};

    fl_memory_fail_at(1, false);
    CHECK(fl_arena_strdup(&a, "x") == NULL);
    CHECK_TEXT(fl_arena_strdup(&a, "y"), "y");
    fl_arena_done(&a);
}
