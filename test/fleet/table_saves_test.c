/* table_saves_test.c - one table in a save of its own, and as text: what comes
 * back has the same bits; what is wrong with a text is named by line. */
#define SUITE table_saves
#include "grown_kit.h"
#include "test.h"
#include "train_kit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

static void open_trained(grown *g, const char *optimizer, int n)
{
    grown_open(g, &(grown_how){.optimizer = optimizer, .options.seed = 3});
    grown_train(g, n);
    grown_train(g, n - 1);
}

static int64_t rows_of(const grown *g)
{
    fleet_table_statistics s;

    CHECK_OK(fleet_table_stat(g->f, "t", &s));
    return s.rows;
}

static void get_row(const grown *g, uint64_t key, float row[GROWN_DIM])
{
    CHECK_OK(fleet_table_get(g->f, "t", &key, 1, GROWN_DIM, row, NULL, NULL));
}

static char *read_file(const char *path)
{
    char *text;
    size_t size;

    CHECK_OK(fl_file_read(path, &text, &size));
    return text;
}

/* --- saves ---------------------------------------------------------------- */

/* w's state and the updates are each one's own: so the rows alone are
 * compared, after another step of both. */
static void check_same_rows(grown *a, grown *b, int n)
{
    for (int i = 0; i < n; i++) {
        float x[GROWN_DIM], y[GROWN_DIM];

        get_row(a, (uint64_t)i, x);
        get_row(b, (uint64_t)i, y);
        CHECK(memcmp(x, y, sizeof x) == 0);
    }
    CHECK_INT(rows_of(a), rows_of(b));
}

TEST(one_table_is_saved_and_loaded_with_its_states_and_nothing_else_changes)
{
    const char *path = test_path("one");
    float w[GROWN_W], before[GROWN_W];
    grown a, b;

    for (int i = 0; kit_rule_name(i); i++) {
        open_trained(&a, kit_rule_name(i), 6);
        open_trained(&b, kit_rule_name(i), 2);
        CHECK_OK(fleet_save_one_table(a.f, "t", path));
        CHECK_OK(fleet_parameter_get(b.f, "w", before, GROWN_W));
        CHECK_OK(fleet_load_one_table(b.f, "t", path, NULL));
        CHECK_OK(fleet_parameter_get(b.f, "w", w, GROWN_W));
        CHECK(memcmp(w, before, sizeof w) == 0);
        check_same_rows(&a, &b, 10);
        grown_train(&a, 6);
        grown_train(&b, 6); /* both have made 2 updates before */
        check_same_rows(&a, &b, 10);
        grown_close(&a);
        grown_close(&b);
    }
}

TEST(a_save_of_one_table_is_no_checkpoint)
{
    const char *path = test_path("one");
    grown g;

    open_trained(&g, "sgd", 4);
    CHECK_OK(fleet_save_one_table(g.f, "t", path));
    CHECK_FAILS(fleet_load_model(g.f, path), FLEET_EINVAL,
                "what was saved is \"table\", not \"checkpoint\"");
    CHECK_FAILS(fleet_save_one_table(g.f, "w", path), FLEET_ENOENT,
                "there is no table \"w\"");
    CHECK_FAILS(fleet_load_one_table(g.f, "more", path, NULL), FLEET_ENOENT,
                "there is no table \"more\"");
    CHECK_FAILS(
        fleet_load_one_table(g.f, "t", path,
                             &(fleet_load_table_options){.source = "other"}),
        FLEET_ENOENT, "has no table \"other\"");
    grown_close(&g);
}

/* Another table's rows, from a whole checkpoint. */
TEST(a_table_is_loaded_from_a_checkpoint_under_another_name)
{
    const fleet_load_table_options o = {.source = "more"};
    const char *path = test_path("saved");
    float want[GROWN_DIM], got[GROWN_DIM];
    uint64_t key = 1;
    grown a, b;

    grown_open(&a, &(grown_how){.optimizer = "adam", .larger = true});
    grown_train(&a, 3);
    CHECK_OK(fleet_save_persistables(a.f, path));
    CHECK_OK(
        fleet_table_get(a.f, "more", &key, 1, GROWN_DIM, want, NULL, NULL));
    grown_open(&b, &(grown_how){.optimizer = "adam"});
    CHECK_OK(fleet_load_one_table(b.f, "t", path, &o));
    get_row(&b, 1, got);
    CHECK(memcmp(want, got, sizeof got) == 0);
    CHECK_INT(rows_of(&b), 3);
    grown_close(&a);
    grown_close(&b);
}

TEST(rows_that_the_save_lacks_are_kept_on_demand)
{
    const fleet_load_table_options keep = {.keep_rows = 1};
    const char *path = test_path("one");
    float mine[GROWN_DIM], its[GROWN_DIM], got[GROWN_DIM];
    grown a, b;

    open_trained(&a, "adam", 3); /* 0, 1, 2 */
    open_trained(&b, "adam", 6);
    CHECK_OK(fleet_save_one_table(a.f, "t", path));
    get_row(&a, 1, its);
    get_row(&b, 5, mine);
    CHECK_OK(fleet_load_one_table(b.f, "t", path, &keep));
    CHECK_INT(rows_of(&b), 6);
    get_row(&b, 1, got);
    CHECK(memcmp(got, its, sizeof got) == 0);
    get_row(&b, 5, got);
    CHECK(memcmp(got, mine, sizeof got) == 0);
    CHECK_OK(fleet_load_one_table(b.f, "t", path, NULL));
    CHECK_INT(rows_of(&b), 3);
    grown_close(&a);
    grown_close(&b);
}

/* --- other shapes --------------------------------------------------------- */

TEST(a_wider_table_takes_a_narrower_one_and_begins_the_rest)
{
    enum { WIDE = 5 };
    const fleet_load_table_options wider = {.wider = 1};
    const char *path = test_path("one");
    float first[WIDE], got[WIDE], narrow[GROWN_DIM];
    uint64_t key = 1;
    int found;
    grown a, b;

    open_trained(&a, "adam", 3);
    CHECK_OK(fleet_save_one_table(a.f, "t", path));
    get_row(&a, 1, narrow);
    grown_open(&b, &(grown_how){.optimizer = "adam", .dim = WIDE});
    CHECK_OK(fleet_table_get(b.f, "t", &key, 1, WIDE, first, NULL, &found));
    CHECK_INT(found, 0);
    CHECK_FAILS(fleet_load_one_table(b.f, "t", path, NULL), FLEET_ESHAPE,
                "\"t\" has 5 columns, but \"t\" in ");
    CHECK_OK(fleet_load_one_table(b.f, "t", path, &wider));
    CHECK_OK(fleet_table_get(b.f, "t", &key, 1, WIDE, got, NULL, &found));
    CHECK_INT(found, 1);
    CHECK(memcmp(got, narrow, sizeof narrow) == 0);
    CHECK(memcmp(got + GROWN_DIM, first + GROWN_DIM,
                 (WIDE - GROWN_DIM) * sizeof *got) == 0);
    CHECK_OK(fleet_save_one_table(b.f, "t", path));
    CHECK_FAILS(fleet_load_one_table(a.f, "t", path, &wider), FLEET_ESHAPE,
                "\"t\" has 2 columns, but \"t\" in ");
    grown_close(&a);
    grown_close(&b);
}

TEST(a_bounded_table_takes_keys_below_its_rows_alone)
{
    const char *path = test_path("one");
    uint64_t before;
    grown a, b;

    open_trained(&a, "sgd", 8);
    CHECK_OK(fleet_save_one_table(a.f, "t", path));
    grown_open(&b, &(grown_how){.optimizer = "sgd", .rows = 8});
    CHECK_OK(fleet_load_one_table(b.f, "t", path, NULL));
    CHECK_INT(rows_of(&b), 8);
    grown_close(&b);
    grown_open(&b, &(grown_how){.optimizer = "sgd", .rows = 7});
    before = grown_hash(&b);
    CHECK_FAILS(fleet_load_one_table(b.f, "t", path, NULL), FLEET_ESHAPE,
                "\"t\" has rows 0 to 6, but \"t\" in ");
    CHECK_CONTAINS(fleet_last_error(), "the row 7");
    CHECK(grown_hash(&b) == before);
    grown_close(&a);
    grown_close(&b);
}

/* --- text ----------------------------------------------------------------- */

TEST(a_text_brings_back_every_bit)
{
    static const uint64_t key[] = {0, UINT64_MAX, 12345678901234567890u, 7};
    static const float row[4][GROWN_DIM] = {{-0.0f, 1e-45f},
                                            {3.4028235e38f, -1.1754944e-38f},
                                            {0.1f, 16777216},
                                            {1.0f / 3, -2.0f / 3}};
    const fleet_export_options states = {.states = 1};
    const char *path = test_path("rows.txt");
    float got[4][GROWN_DIM], x[4][2 * GROWN_DIM], y[4][2 * GROWN_DIM];
    int found[4];
    grown a, b;

    for (int with = 0; with < 2; with++) {
        open_trained(&a, "adam", 5);
        CHECK_OK(fleet_table_set(a.f, "t", key, 4, GROWN_DIM, row[0], NULL));
        CHECK_OK(fleet_export_table(a.f, "t", path, with ? &states : NULL));
        CHECK(!fl_file_exists(test_path("rows.txt.exporting")));
        open_trained(&b, "adam", 9);
        CHECK_OK(fleet_import_table(b.f, "t", path, NULL));
        CHECK(!fl_file_exists(test_path("rows.txt.importing")));
        CHECK_INT(rows_of(&a), rows_of(&b));
        CHECK_OK(
            fleet_table_get(b.f, "t", key, 4, GROWN_DIM, got[0], y[0], found));
        CHECK(memcmp(got, row, sizeof row) == 0);
        CHECK_OK(
            fleet_table_get(a.f, "t", key, 4, GROWN_DIM, got[0], x[0], found));
        CHECK((memcmp(x, y, sizeof x) == 0) == with);
        grown_close(&a);
        grown_close(&b);
    }
}

/* As gensim reads it: "rows columns", then a word and its numbers. */
TEST(a_text_is_word2vecs_format)
{
    static const uint64_t key[] = {42};
    static const float row[GROWN_DIM] = {0.5f, -0.1f};
    const char *path = test_path("rows.txt");
    char *text;
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "adagrad"});
    CHECK_OK(fleet_table_set(g.f, "t", key, 1, GROWN_DIM, row, NULL));
    CHECK_OK(fleet_export_table(g.f, "t", path, NULL));
    text = read_file(path);
    CHECK_TEXT(text, "1 2\n42 0.5 -0.100000001\n");
    fl_free(text);
    CHECK_OK(fleet_export_table(g.f, "t", path,
                                &(fleet_export_options){.states = 1}));
    text = read_file(path);
    CHECK_TEXT(text, "1 2 updates sum\n42 0.5 -0.100000001 0 0 0\n");
    fl_free(text);
    grown_close(&g);
}

TEST(a_text_of_another_tool_is_taken)
{
    const char *path = test_file("rows.txt", "  2   2 \r\n1 .5 +1E-3\r\n\n"
                                             "\t18446744073709551615 3 -4. ");
    float row[GROWN_DIM];
    grown g;

    open_trained(&g, "momentum", 4);
    CHECK_OK(fleet_import_table(g.f, "t", path, NULL));
    CHECK_INT(rows_of(&g), 2);
    get_row(&g, 1, row);
    CHECK(row[0] == 0.5f && row[1] == 0.001f);
    get_row(&g, UINT64_MAX, row);
    CHECK(row[0] == 3 && row[1] == -4);
    CHECK_OK(fleet_import_table(
        g.f, "t", test_file("more.txt", "1 1\n9 5\n"),
        &(fleet_import_options){.keep_rows = 1, .wider = 1}));
    CHECK_INT(rows_of(&g), 3);
    get_row(&g, 9, row);
    CHECK(row[0] == 5 && row[1] != 0);
    CHECK_OK(
        fleet_import_table(g.f, "t", test_file("none.txt", "0 2\n"), NULL));
    CHECK_INT(rows_of(&g), 0);
    grown_close(&g);
}

/* --- what is wrong with a text -------------------------------------------- */

TEST(a_wrong_text_is_named_by_line_and_changes_nothing)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"", "rows.txt:0: the file is empty"},
        {"\n", "rows.txt:1: expected the number of rows"},
        {"2\n", "rows.txt:1: expected the number of rows"},
        {"2 0\n", "rows.txt:1: expected the number of rows"},
        {"-1 2\n", "rows.txt:1: expected the number of rows"},
        {"1 1048577\n", "columns, 1 to 1048576"},
        {"99999999999999999999 2\n", "rows.txt:1: expected the number"},
        {"1 2 m\n", "rows.txt:1: expected the end of the line, or \"updates\""},
        {"1 2 updates m m\n", "rows.txt:1: a state that no optimizer has"},
        {"1 2 updates x\n", "rows.txt:1: a state that no optimizer has"},
        {"1 2 updates v m\n1 2 3 0 1 1 1 1\n", "no optimizer has these states"},
        {"1 2\n", "rows.txt:1: the file ends after 0 of 1 rows"},
        {"2 2\n1 1 1\n", "rows.txt:2: the file ends after 1 of 2 rows"},
        {"1 2\n1 1 1\n2 1 1\n", "rows.txt:3: another row, after the 1"},
        {"1 2\n1 1\n", "rows.txt:2: weight 1 is missing: the line ends"},
        {"1 2\n1 1 1 1\n", "rows.txt:2: more numbers than the first line says"},
        {"1 2\n1 1 nan\n", "rows.txt:2: weight 1: \"nan\""},
        {"1 2\n1 inf 1\n", "rows.txt:2: weight 0: \"inf\""},
        {"1 2\n1 1e39 1\n", "rows.txt:2: weight 0: \"1e39\""},
        {"1 2\n1 0x1 1\n", "rows.txt:2: weight 0: \"0x1\""},
        {"1 2\n-1 1 1\n", "rows.txt:2: the key in column 0: \"-1\""},
        {"1 2\n18446744073709551616 1 1\n", "rows.txt:2: the key in column"},
        {"2 2\n7 1 1\n7 1 1\n", "rows.txt:3: the key 7 stands twice"},
        {"1 2 updates\n1 1 1 -1\n", "rows.txt:2: the updates behind weight 1"},
        {"1 2 updates sum\n1 1 1 0 1\n", "rows.txt:2: number of the states 1"},
        {"1 3\n1 1 1 1\n", "\"t\" has 2 columns, but \"t\" in "},
        {"1 1\n1 1\n", "a narrower one is loaded with `wider` alone"},
        {"1 2 updates sum\n1 1 1 0 1 1\n", "another optimizer than adam"},
    };
    uint64_t before;
    grown g;

    open_trained(&g, "adam", 4);
    before = grown_hash(&g);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *path = test_file("rows.txt", wrong[i].text);

        CHECK(fleet_import_table(g.f, "t", path, NULL) != FLEET_OK);
        CHECK_CONTAINS(fleet_last_error(), wrong[i].words);
        CHECK(!fl_file_exists(test_path("rows.txt.importing")));
    }
    CHECK(grown_hash(&g) == before);
    CHECK_FAILS(fleet_import_table(g.f, "t", test_path("nowhere"), NULL),
                FLEET_ENOENT, "nowhere");
    CHECK_FAILS(fleet_import_table(g.f, "t", NULL, NULL), FLEET_EINVAL,
                "there is no path");
    CHECK_FAILS(fleet_export_table(g.f, "t", "", NULL), FLEET_EINVAL,
                "there is no path");
    grown_close(&g);
}

/* Longer than a block that is read at once, and than a line may be. */
TEST(lines_of_any_length_are_read_up_to_the_limit)
{
    enum { LONG = 3 << 20, TOO_LONG = (64 << 20) + (2 << 20) };
    char *text = malloc(TOO_LONG + 100);
    float row[GROWN_DIM];
    size_t n;
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "sgd"});
    n = (size_t)sprintf(text, "1 2\n5 1");
    memset(text + n, ' ', LONG);
    strcpy(text + n + LONG, "2\n");
    CHECK_OK(fleet_import_table(
        g.f, "t", test_file_bytes("long.txt", text, n + LONG + 2), NULL));
    get_row(&g, 5, row);
    CHECK(row[0] == 1 && row[1] == 2);
    memset(text + n, ' ', TOO_LONG);
    CHECK_FAILS(
        fleet_import_table(
            g.f, "t", test_file_bytes("long.txt", text, n + TOO_LONG), NULL),
        FLEET_EFORMAT, "long.txt:2: a line of more than 64 MB");
    free(text);
    grown_close(&g);
}

/* --- disks ---------------------------------------------------------------- */

static int calls_left;

static ssize_t write_until_full(int fd, const void *data, size_t size)
{
    if (--calls_left < 0) {
        errno = ENOSPC;
        return -1;
    }
    return fl_disk_system.write(fd, data, size);
}

static int flush_until_broken(int fd)
{
    if (--calls_left < 0) {
        errno = EIO;
        return -1;
    }
    return fl_disk_system.flush(fd);
}

/* Whatever fails, the old text stays as it was, whole. */
static void check_disk(const fl_disk *bad)
{
    const char *path = test_path("rows.txt");
    char *old, *now;
    int n = 0;
    grown g;

    open_trained(&g, "adam", 4);
    CHECK_OK(fleet_export_table(g.f, "t", path, NULL));
    old = read_file(path);
    grown_train(&g, 6);
    for (;; n++) {
        fleet_status status;

        calls_left = n;
        fl_disk_use(bad);
        status = fleet_export_table(g.f, "t", path, NULL);
        fl_disk_use(NULL);
        now = read_file(path);
        if (status == FLEET_OK)
            break;
        CHECK_INT(status, FLEET_EIO);
        CHECK_CONTAINS(fleet_last_error(), "export: ");
        CHECK(strcmp(now, old) == 0 || strstr(fleet_last_error(), "flush"));
        fl_free(now);
    }
    CHECK(n >= 3);
    CHECK(strcmp(now, old) != 0);
    fl_free(now);
    fl_free(old);
    grown_close(&g);
}

TEST(a_full_disk_leaves_the_old_text)
{
    fl_disk disk = fl_disk_system;

    disk.write = write_until_full;
    check_disk(&disk);
}

TEST(a_disk_that_cannot_be_flushed_is_named)
{
    fl_disk disk = fl_disk_system;

    disk.flush = flush_until_broken;
    check_disk(&disk);
}

TEST(a_folder_of_somebody_elses_is_left_alone)
{
    const char *path = test_file("rows.txt", "1 2\n1 1 1\n");
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "sgd"});
    CHECK(mkdir(test_path("rows.txt.importing"), 0777) == 0);
    CHECK(mkdir(test_path("rows.txt.exporting"), 0777) == 0);
    test_file("rows.txt.importing/mine", "x");
    test_file("rows.txt.exporting/mine", "x");
    CHECK_FAILS(fleet_import_table(g.f, "t", path, NULL), FLEET_EEXIST,
                "rows.txt.importing");
    CHECK_FAILS(fleet_export_table(g.f, "t", path, NULL), FLEET_EEXIST,
                "rows.txt.exporting");
    CHECK(fl_file_exists(test_path("rows.txt.importing/mine")));
    CHECK(fl_file_exists(test_path("rows.txt.exporting/mine")));
    CHECK_FAILS(
        fleet_import_table(g.f, "t", path,
                           &(fleet_import_options){.folder = test_folder()}),
        FLEET_EEXIST, "rows.txt.importing");
    CHECK(mkdir(test_path("there"), 0777) == 0);
    CHECK_OK(fleet_import_table(
        g.f, "t", path, &(fleet_import_options){.folder = test_path("there")}));
    CHECK_INT(rows_of(&g), 1);
    grown_close(&g);
}

/* Before its load has begun nothing is changed; after that the next one mends
 * the table. */
TEST(memory_that_runs_out_in_an_import_changes_nothing_or_says_so)
{
    const char *path = test_file("rows.txt", "2 2\n1 1 1\n2 3 4\n");
    fleet_status status = FLEET_ENOMEM;
    uint64_t before, now;
    int64_t n = 0, whole = 0;
    grown g;

    open_trained(&g, "adam", 4);
    before = grown_hash(&g);
    while (status != FLEET_OK) {
        fl_memory_fail_at(++n, true);
        status = fleet_import_table(g.f, "t", path, NULL);
        fl_memory_fail_at(0, false);
        if (status == FLEET_OK)
            break;
        CHECK(status == FLEET_ENOMEM || status == FLEET_EIO);
        CHECK_OK(fleet_params_hash(g.f, &now));
        if (fleet_save_one_table(g.f, "t", test_path("again")) == FLEET_OK)
            whole += now == before;
        else
            CHECK_CONTAINS(fleet_last_error(), "half-way");
    }
    CHECK(whole > 20);
    CHECK_INT(rows_of(&g), 2);
    grown_close(&g);
}

/* One table's pieces are mended by a load of that table, or of all; those of
 * all by no table. */
TEST(a_table_in_pieces_is_mended_by_a_load_of_it)
{
    const char *one = test_path("one"), *all = test_path("all");
    grown g;

    open_trained(&g, "sgd", 4);
    CHECK_OK(fleet_save_one_table(g.f, "t", one));
    CHECK_OK(fleet_save_persistables(g.f, all));
    for (int i = 0; i < 2; i++) {
        int64_t n = 0;

        do {
            fl_memory_fail_at(++n, true);
            CHECK(i == 0 ? fleet_load_one_table(g.f, "t", one, NULL) != FLEET_OK
                         : fleet_load_model(g.f, all) != FLEET_OK);
            fl_memory_fail_at(0, false);
        } while (fleet_save_one_table(g.f, "t", test_path("again")) ==
                 FLEET_OK);
        CHECK_CONTAINS(fleet_last_error(), "half-way");
        CHECK_OK(fleet_load_one_table(g.f, "t", one, NULL));
        CHECK((fleet_save_one_table(g.f, "t", one) == FLEET_OK) == (i == 0));
        CHECK_OK(fleet_load_model(g.f, all));
        CHECK_OK(fleet_save_one_table(g.f, "t", one));
    }
    grown_close(&g);
}
