/* change_log_test.c - which rows of a table have changed since a version. */
#define SUITE change_log
#include "test.h"

#include <string.h>

#include "ps/change_log.h"
#include "runtime/store/table.h"

typedef struct scene {
    fl_rows *rows;
    fl_change_log log;
    uint64_t now, until;
    fl_change_status found;
} scene;

static scene open_scene(void)
{
    const fl_filler zero = {.kind = FLEET_INIT_CONSTANT};
    scene s = {0};

    CHECK_OK(fl_table_make("t", 2, 0, &zero, &s.rows));
    return s;
}

static void close_scene(scene *s)
{
    fl_change_log_done(&s->log);
    s->rows->methods->destroy(s->rows);
}

/* The rows from `first` on get the next version. */
static void change(scene *s, uint64_t first, int n)
{
    uint64_t key[16];
    float *row[16];

    for (int i = 0; i < n; i++)
        key[i] = first + (uint64_t)i;
    s->now++;
    CHECK_OK(s->rows->methods->make(s->rows, key, n, row));
    for (int i = 0; i < n; i++) {
        fl_row_of(row[i])->changed_at = s->now;
        row[i][0] = (float)s->now;
    }
    CHECK_OK(fl_change_log_add(&s->log, s->rows, key, n, s->now));
}

/* Keys below 10, one digit each, as they come. */
static const char *read_since(scene *s, uint64_t since, size_t most)
{
    static char text[100];
    int64_t i;

    CHECK_OK(fl_change_log_read(&s->log, s->rows, since, s->now, most,
                                &s->until, &s->found));
    for (i = 0; i < s->log.n_read; i++) {
        text[i] = (char)('0' + s->log.key[i]);
        CHECK(s->log.row[i][0] == (float)fl_row_of(s->log.row[i])->changed_at);
    }
    text[i] = 0;
    return text;
}

TEST(each_row_that_has_changed_since_then_comes_once)
{
    scene s = open_scene();

    CHECK_TEXT(read_since(&s, 0, 1000), "");
    CHECK_INT(s.found, FL_CHANGES_ALL);
    change(&s, 1, 3);
    change(&s, 2, 1);
    change(&s, 5, 1);
    CHECK_TEXT(read_since(&s, 0, 1000), "1325");
    CHECK_INT(s.until, 3);
    CHECK_TEXT(read_since(&s, 1, 1000), "25");
    CHECK_TEXT(read_since(&s, 3, 1000), "");
    CHECK_INT(s.found, FL_CHANGES_ALL);
    CHECK_INT(fl_change_log_after(&s.log, 1), 2);
    close_scene(&s);
}

TEST(what_does_not_fit_comes_next_and_nothing_is_passed_over)
{
    scene s = open_scene();

    change(&s, 1, 2);
    change(&s, 3, 2);
    change(&s, 1, 1);
    CHECK_TEXT(read_since(&s, 0, 8), "2"); /* a version is whole */
    CHECK_INT(s.found, FL_CHANGES_MORE);
    CHECK_INT(s.until, 1);
    CHECK_TEXT(read_since(&s, s.until, 8), "34");
    CHECK_INT(s.found, FL_CHANGES_MORE);
    CHECK_INT(s.until, 2);
    CHECK_TEXT(read_since(&s, s.until, 8), "1");
    CHECK_INT(s.found, FL_CHANGES_ALL);
    CHECK_INT(s.until, 3);
    close_scene(&s);
}

/* One of more rows than are looked for at once. */
TEST(a_large_version_is_whole_however_little_is_asked_for)
{
    enum { MANY = 3000 };
    static uint64_t key[MANY];
    static float *row[MANY];
    scene s = open_scene();

    for (int i = 0; i < MANY; i++)
        key[i] = (uint64_t)i;
    CHECK_OK(s.rows->methods->make(s.rows, key, MANY, row));
    s.now = 1;
    for (int i = 0; i < MANY; i++)
        fl_row_of(row[i])->changed_at = s.now;
    CHECK_OK(fl_change_log_add(&s.log, s.rows, key, MANY, s.now));
    CHECK_OK(
        fl_change_log_read(&s.log, s.rows, 0, s.now, 8, &s.until, &s.found));
    CHECK_INT(s.log.n_read, MANY);
    CHECK_INT(s.found, FL_CHANGES_ALL);
    close_scene(&s);
}

TEST(when_room_is_short_the_oldest_changes_are_forgotten_and_known_to_be)
{
    scene s = open_scene();

    s.log.most = 4;
    for (uint64_t i = 0; i < 8; i++)
        change(&s, i, 1);
    CHECK(s.log.n <= s.log.most);
    CHECK(s.log.since > 0);
    CHECK_TEXT(read_since(&s, s.log.since - 1, 1000), "");
    CHECK_INT(s.found, FL_CHANGES_LOST);
    CHECK_INT(s.until, 8);
    read_since(&s, s.log.since, 1000);
    CHECK_INT(s.found, FL_CHANGES_ALL);
    CHECK_INT(s.log.n_read, 8 - (int64_t)s.log.since);
    close_scene(&s);
}

TEST(one_row_that_changes_often_takes_the_room_of_one)
{
    scene s = open_scene();

    s.log.most = 4;
    change(&s, 7, 1);
    for (int i = 0; i < 50; i++)
        change(&s, 3, 1);
    CHECK_INT(s.log.since, 0); /* nothing was forgotten */
    CHECK_TEXT(read_since(&s, 0, 1000), "73");
    close_scene(&s);
}

TEST(after_rows_have_gone_nothing_is_known_of_before)
{
    scene s = open_scene();
    uint64_t key = 2;
    int64_t erased;

    change(&s, 1, 3);
    CHECK_OK(s.rows->methods->erase(s.rows, &key, 1, &erased));
    CHECK_TEXT(read_since(&s, 0, 1000), "");
    CHECK_INT(s.found, FL_CHANGES_LOST);
    change(&s, 4, 1);
    read_since(&s, 1, 1000);
    CHECK_INT(s.found, FL_CHANGES_LOST);
    change(&s, 5, 1);
    CHECK_TEXT(read_since(&s, 2, 1000), "5");
    CHECK_INT(s.found, FL_CHANGES_ALL);
    close_scene(&s);
}

TEST(a_version_that_has_not_come_is_not_known)
{
    scene s = open_scene();

    change(&s, 1, 1);
    read_since(&s, UINT64_MAX, 1000);
    CHECK_INT(s.found, FL_CHANGES_LOST);
    CHECK_INT(s.until, 1);
    close_scene(&s);
}
