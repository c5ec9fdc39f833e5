/* hot_rows_test.c - rows that a worker keeps: found by key whatever came and
 * went, within their bytes; what is used stays longer than what is not, and a
 * row that a pull slot points to stays. */
#define SUITE hot_rows
#include "test.h"

#include <string.h>

#include "ps/hot_rows.h"

enum { DIM = 3, FIRST = 8 }; /* rows that a table begins with */

typedef struct scene {
    fl_rows rows[2];
    fl_hot_rows hot;
    fl_hot_table *t;
} scene;

/* Two tables; the first one has all that is not the second one's least. */
static void open_scene(scene *s, size_t most)
{
    const fl_rows *const table[] = {&s->rows[0], &s->rows[1]};

    memset(s, 0, sizeof *s);
    s->rows[0].dim = DIM;
    s->rows[1].dim = 1;
    CHECK_OK(fl_hot_rows_make(&s->hot, table, 2, most));
    s->t = &s->hot.table[0];
}

static fl_hot_row *find(const scene *s, uint64_t key)
{
    fl_hot_row *row;

    fl_hot_rows_find(s->t, &key, 1, &row);
    return row;
}

static fl_hot_row *add(scene *s, uint64_t key)
{
    fl_hot_row *row = fl_hot_rows_add(&s->hot, s->t, key);

    for (int i = 0; row && i < DIM; i++)
        fl_hot_values(row)[i] = (float)key + (float)i;
    return row;
}

static void check_row(const scene *s, uint64_t key)
{
    fl_hot_row *row = find(s, key);

    CHECK(row != NULL);
    CHECK_INT(row->key, key);
    for (int i = 0; i < DIM; i++)
        CHECK_NEAR((double)fl_hot_values(row)[i], (double)key + i, 0);
}

/* Of both tables 8 rows of 48 bytes, and 16 places of the index. */
enum { LEAST = 2 * (8 * 48 + 16 * 4) };

TEST(each_table_has_room_for_its_first_rows_or_none_is_made)
{
    const fl_rows table[2] = {{.dim = DIM}, {.dim = 1}};
    const fl_rows *const both[] = {&table[0], &table[1]};
    fl_hot_rows hot;
    scene s;

    CHECK_FAILS(fl_hot_rows_make(&hot, both, 2, LEAST - 1), FLEET_EINVAL,
                "expected at least 896 bytes, for 8 rows of each of 2 tables, "
                "got 895");
    open_scene(&s, LEAST);
    CHECK_INT(s.hot.bytes, LEAST);
    CHECK_INT(fl_hot_rows_count(&s.hot), 0);
    fl_hot_rows_done(&s.hot);
}

TEST(a_row_is_found_until_there_is_no_room_and_the_unused_ones_go_first)
{
    scene s;

    open_scene(&s, LEAST);
    for (uint64_t key = 0; key < FIRST; key++)
        CHECK(add(&s, key) != NULL);
    for (uint64_t key = 0; key < FIRST; key++)
        check_row(&s, key);
    for (uint64_t key = 0; key < FIRST; key++)
        find(&s, key)->used = key % 2;
    for (uint64_t key = 100; key < 100 + FIRST / 2; key++)
        CHECK(add(&s, key) != NULL);
    for (uint64_t key = 0; key < FIRST; key++)
        CHECK_INT(find(&s, key) != NULL, key % 2);
    CHECK_INT(s.hot.n_replaced, FIRST / 2);
    CHECK_INT(fl_hot_rows_count(&s.hot), FIRST);
    CHECK_INT(s.hot.bytes, LEAST);
    add(&s, 200); /* in place of what came first, and was not used since */
    CHECK(find(&s, 100) == NULL);
    check_row(&s, 1);
    fl_hot_rows_done(&s.hot);
}

TEST(what_a_slot_points_to_stays)
{
    scene s;

    open_scene(&s, LEAST);
    for (uint64_t key = 0; key < FIRST; key++)
        add(&s, key)->slots = key != 5;
    for (uint64_t key = 100; key < 110; key++)
        CHECK(add(&s, key) != NULL); /* each in place of the one before it */
    CHECK(find(&s, 5) == NULL);
    for (uint64_t key = 0; key < FIRST; key++)
        if (key != 5)
            check_row(&s, key);
    find(&s, 109)->slots = 2;
    CHECK(add(&s, 200) == NULL);
    check_row(&s, 109);
    fl_hot_rows_done(&s.hot);
}

/* Rows come and go at random; what is said to be kept is, and as it was. */
TEST(whatever_comes_and_goes_the_index_knows)
{
    enum { KEYS = 4000, ROUNDS = 20000 };
    static bool kept[KEYS];
    uint64_t state = 1, replaced = 0;
    scene s;

    open_scene(&s, 64 << 10);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t key = fl_mix(state++) % KEYS;
        fl_hot_row *row = find(&s, key);

        CHECK_INT(row != NULL, kept[key]);
        if (row) {
            check_row(&s, key);
            row->used = true;
            continue;
        }
        if (add(&s, key))
            kept[key] = true;
        if (s.hot.n_replaced == replaced)
            continue;
        replaced = s.hot.n_replaced;
        for (uint64_t k = 0; k < KEYS; k++) /* one has gone */
            kept[k] = kept[k] && find(&s, k);
    }
    CHECK(s.hot.n_replaced > 5000);
    CHECK(s.hot.bytes <= 64 << 10);
    CHECK(s.hot.bytes > 48 << 10);
    CHECK(fl_hot_rows_count(&s.hot) > 900);
    fl_hot_rows_done(&s.hot);
}
