/* buddy_test.c - blocks of memory that never overlap, are zero, and become one
 * again. */
#define SUITE buddy
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/alloc/buddy.h"

enum { MOST = 400, ROUNDS = TEST_SLOWNESS > 10 ? 2000 : 20000 };

typedef struct held {
    unsigned char *p;
    size_t bytes;
    unsigned char mark;
} held;

static void fill(held *h, fl_buddy *b, size_t bytes, int mark)
{
    h->p = fl_buddy_alloc(b, bytes);
    h->bytes = bytes;
    h->mark = (unsigned char)mark;
    CHECK(h->p && (uintptr_t)h->p % 64 == 0);
    for (size_t i = 0; i < bytes; i++)
        if (h->p[i])
            test_fail(__FILE__, __LINE__, "byte %zu of %zu is not 0", i, bytes);
    memset(h->p, mark, bytes);
}

static void drop(held *h, fl_buddy *b)
{
    for (size_t i = 0; i < h->bytes; i++)
        if (h->p[i] != h->mark)
            test_fail(__FILE__, __LINE__, "another block wrote here");
    fl_buddy_free(b, h->p, h->bytes);
    h->p = NULL;
}

static void fill_and_drop(bool by_three)
{
    static held all[MOST];
    fl_buddy b = {.by_three = by_three};
    size_t least = by_three ? 384 : 128;

    srand(1);
    for (int round = 0; round < ROUNDS; round++) {
        held *h = &all[rand() % MOST];

        if (h->p)
            drop(h, &b);
        else
            fill(h, &b, least << rand() % (rand() % 50 ? 6 : 16),
                 1 + round % 255);
    }
    for (int i = 0; i < MOST; i++)
        if (all[i].p)
            drop(&all[i], &b);
    fl_buddy_done(&b);
}

TEST(blocks_are_zero_and_nobody_elses)
{
    fill_and_drop(false);
    fill_and_drop(true);
}

/* Blocks of 1.5 MB: each of 3 MB's chunks has two, the first one has none. */
TEST(memory_of_chunks_that_are_free_is_given_back)
{
    enum { N = 9, BIG = 3 << 19 };
    fl_buddy b = {.by_three = true};
    void *p[N], *small = fl_buddy_alloc(&b, 384);

    for (int i = 0; i < N; i++)
        CHECK((p[i] = fl_buddy_alloc(&b, BIG)) != NULL);
    for (int i = 0; i < N; i++)
        fl_buddy_free(&b, p[i], BIG);
    CHECK(fl_buddy_free_bytes(&b) < BIG);
    fl_buddy_free(&b, small, 384);
    CHECK(b.chunk != NULL);
    fl_buddy_done(&b);
}

TEST(what_is_given_back_becomes_one_block_again)
{
    fl_buddy b = {0};
    void *small[512], *whole;

    for (int i = 0; i < 512; i++) /* the first chunk, and no more */
        CHECK((small[i] = fl_buddy_alloc(&b, 128)) != NULL);
    for (int i = 0; i < 512; i++)
        fl_buddy_free(&b, small[(i * 173) % 512], 128);
    fl_memory_fail_at(1, true);
    whole = fl_buddy_alloc(&b, 64 << 10);
    fl_memory_fail_at(0, false);
    CHECK(whole != NULL);
    fl_buddy_done(&b);
}

TEST(memory_that_runs_out_is_told)
{
    fl_buddy b = {0};

    for (int n = 1; n <= 2; n++) {
        fl_memory_fail_at(n, false);
        CHECK(fl_buddy_alloc(&b, 128) == NULL);
        fl_memory_fail_at(0, false);
    }
    CHECK(fl_buddy_alloc(&b, 128) != NULL);
    fl_buddy_free(&b, NULL, 0);
    fl_buddy_done(&b);
}
