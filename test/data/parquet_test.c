/* parquet_test.c - Parquet files: what columns are to slots, files that pyarrow
 * writes, and what is refused, with file, row, column and row group. */
#define _GNU_SOURCE
#define SUITE parquet
#include "data_kit.h"
#include "parquet_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COLUMNS(...)                                                           \
    .columns = (const char *const[]){__VA_ARGS__},                             \
    .n_column =                                                                \
        (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
#define TRANSFORM(t)                                                           \
    .transforms = (const fleet_transform[]){t}, .n_transform = 1

static int64_t hash_of(const char *text, int slot)
{
    return (int64_t)fleet_hash_text(text, strlen(text), (uint64_t)slot);
}

static fl_stream_spec spec_of(const fleet_slot *slots, int n,
                              const char *const *path)
{
    return data_spec(FLEET_PARQUET, slots, n, path, 1);
}

/* --- values --------------------------------------------------------------- */

static const char *const names[] = {"click", "age",  "score",
                                    "city",  "tags", "vector"};

static void put_row(parquet_sheet *s, int click, double score, const char *city)
{
    parquet_int(s, 0, click);
    if (city)
        parquet_int(s, 1, 10 * click + 7);
    else
        parquet_null(s, 1);
    parquet_real(s, 2, score);
    if (city)
        parquet_text(s, 3, city, strlen(city));
    else
        parquet_null(s, 3);
}

static void put_tags(parquet_sheet *s, int n, ...)
{
    for (int i = 0; i < n; i++)
        parquet_text(s, 4, i % 2 ? "red" : "blue", i % 2 ? 3 : 4);
    parquet_list(s, 4);
}

static void put_vector(parquet_sheet *s, int n)
{
    for (int i = 0; i < n; i++)
        parquet_real(s, 5, 0.5 + i);
    parquet_list(s, 5);
}

/* Three rows in two groups. */
static const char *small_file(void)
{
    const char *path = test_path("small.parquet");
    parquet_sheet s;

    parquet_open(&s, path, names, "iirtTR");
    put_row(&s, 1, 0.25, "Paris");
    put_tags(&s, 2);
    put_vector(&s, 3);
    put_row(&s, 0, -3, NULL);
    put_tags(&s, 0);
    put_vector(&s, 0);
    parquet_group(&s);
    put_row(&s, 1, 1e10, "Rome");
    put_tags(&s, 1);
    put_vector(&s, 3);
    parquet_close(&s);
    return path;
}

static const fleet_slot slots[] = {
    {.name = "y", COLUMNS("click"), .required = 1},
    {.name = "dense", .dim = 2, COLUMNS("score", "age")},
    {.name = "city", .dtype = FLEET_INT64, COLUMNS("city")},
    {.name = "age_id", .dtype = FLEET_INT64, COLUMNS("age")},
    {.name = "age",
     .dtype = FLEET_INT64,
     COLUMNS("age"),
     TRANSFORM(FLEET_TRANSFORM_NONE)},
    {.name = "words",
     .dtype = FLEET_INT64,
     .dim = -1,
     COLUMNS("city", "tags", "age")},
    {.name = "vector", .dim = 3, COLUMNS("vector")},
    {.name = "is_rome",
     COLUMNS("city"),
     TRANSFORM(FLEET_EQUALS),
     .equals = (const char *const[]){"Rome"},
     .n_equals = 1}};
enum { Y, DENSE, CITY, AGE_ID, AGE, WORDS, VECTOR, IS_ROME, N_SLOT };

static void check_words(const fl_slot_data *words)
{
    const int64_t *id = words->values;

    CHECK_INT(words->offsets[1], 4);
    CHECK(id[0] == hash_of("Paris", WORDS) && id[1] == hash_of("blue", WORDS));
    CHECK(id[2] == hash_of("red", WORDS) && id[3] == hash_of("17", WORDS));
    CHECK_INT(words->offsets[2], 4); /* nulls are none */
    CHECK_INT(words->offsets[3], 7);
}

TEST(columns_are_to_slots_what_cells_of_csv_are)
{
    const char *path = small_file();
    fl_stream_spec spec = spec_of(slots, N_SLOT, &path);
    const fl_batch *b;
    const float *x;
    const int64_t *id;

    spec.batch_size = 3; /* of two groups */
    b = data_first(&spec);
    CHECK_INT(b->rows, 3);
    x = b->slot[Y].values;
    CHECK(x[0] == 1 && x[1] == 0 && x[2] == 1);
    x = b->slot[DENSE].values;
    CHECK(x[0] == 0.25f && x[1] == 17 && x[2] == -3 && x[3] == 0);
    id = b->slot[CITY].values;
    CHECK(id[0] == hash_of("Paris", CITY) && id[1] == hash_of("", CITY));
    id = b->slot[AGE_ID].values;
    CHECK(id[0] == hash_of("17", AGE_ID) && id[1] == hash_of("", AGE_ID));
    id = b->slot[AGE].values;
    CHECK(id[0] == 17 && id[1] == hash_of("", AGE) && id[2] == 17);
    check_words(&b->slot[WORDS]);
    x = b->slot[VECTOR].values;
    CHECK(x[0] == 0.5f && x[2] == 2.5f && x[3] == 0 && x[5] == 0);
    CHECK(x[6] == 0.5f && x[8] == 2.5f);
    x = b->slot[IS_ROME].values;
    CHECK(x[0] == 0 && x[1] == 0 && x[2] == 1);
}

/* --- the same data as csv ------------------------------------------------- */

#define ID(n, c)                                                               \
    {                                                                          \
        .name = n, .dtype = FLEET_INT64, COLUMNS(c)                            \
    }
#define ADULT(y, a, b, c, d, e, f, w, o, m, k)                                 \
    {                                                                          \
        {.name = "income",                                                     \
         COLUMNS(y),                                                           \
         TRANSFORM(FLEET_EQUALS),                                              \
         .equals = (const char *const[]){">50K"},                              \
         .n_equals = 1},                                                       \
            {.name = "dense",                                                  \
             .dim = 6,                                                         \
             COLUMNS(a, b, c, d, e, f),                                        \
             .transforms =                                                     \
                 (const fleet_transform[]){                                    \
                     FLEET_STANDARDIZE, FLEET_LOG1P_STANDARDIZE,               \
                     FLEET_TRANSFORM_NONE, FLEET_LOG1P,                        \
                     FLEET_LOG1P_STANDARDIZE, FLEET_STANDARDIZE},              \
             .n_transform = 6},                                                \
            ID("workclass", w), ID("occupation", o),                           \
            {.name = "bag",                                                    \
             .dtype = FLEET_INT64,                                             \
             .dim = -1,                                                        \
             COLUMNS(w, m, a)},                                                \
        {                                                                      \
            .name = "country", .dtype = FLEET_INT64, .dim = -1, COLUMNS(k),    \
            TRANSFORM(FLEET_WORDS)                                             \
        }                                                                      \
    }

static const fleet_slot adult_csv[] =
    ADULT("14", "0", "2", "4", "10", "11", "12", "1", "6", "5", "13");
static const fleet_slot adult_parquet[] =
    ADULT("income", "age", "fnlwgt", "edunum", "gain", "loss", "hours",
          "workclass", "occupation", "marital", "country");

typedef struct adult {
    const char *csv[2], *parquet[2];
    fl_stream_spec text, columns;
    fl_statistics statistics, same;
} adult;

static void adult_open(adult *a)
{
    for (int i = 0; i < 2; i++) {
        a->csv[i] = test_path(i ? "b.csv" : "a.csv");
        a->parquet[i] = test_path(i ? "b.parquet" : "a.parquet");
        parquet_adult(a->csv[i], a->parquet[i], i ? 3001 : 16000);
    }
    a->text = data_spec(FLEET_CSV, adult_csv, DATA_N(adult_csv), a->csv, 2);
    a->columns = data_spec(FLEET_PARQUET, adult_parquet, DATA_N(adult_parquet),
                           a->parquet, 2);
    a->text.missing = a->columns.missing = "?";
    a->text.batch_size = a->columns.batch_size = 127;
    CHECK_OK(fl_stream_statistics(&a->text, &a->statistics));
    CHECK_OK(fl_stream_statistics(&a->columns, &a->same));
    a->text.statistics = &a->statistics;
    a->columns.statistics = &a->same;
}

static void adult_close(adult *a)
{
    fl_statistics_done(&a->statistics);
    fl_statistics_done(&a->same);
}

static void check_same(const adult *a, int64_t rows)
{
    data_dump want = data_read(&a->text), got = data_read(&a->columns);

    CHECK_TEXT(got.error, want.error);
    CHECK(data_same(&got, &want));
    CHECK_INT(got.rows, rows);
    free(want.bytes);
    free(got.bytes);
}

TEST(adult_is_to_the_bit_what_it_is_as_csv)
{
    adult a;

    adult_open(&a);
    CHECK_INT(a.statistics.n, a.same.n);
    for (int i = 0; i < a.same.n; i++)
        CHECK(a.same.mean[i] == a.statistics.mean[i] &&
              a.same.deviation[i] == a.statistics.deviation[i]);
    for (int threads = 1; threads <= 3; threads++) {
        a.columns.n_thread = threads;
        check_same(&a, 19001);
    }
    adult_close(&a);
}

/* Groups that are passed over whole, and parts of groups. */
TEST(shares_shuffles_and_later_batches_are_those_of_csv)
{
    static const int64_t first[] = {1, 55, 60, 200};
    adult a;

    adult_open(&a);
    a.columns.n_thread = 2;
    a.text.shuffle = a.columns.shuffle = 1000;
    check_same(&a, 19001);
    a.text.shuffle = a.columns.shuffle = 0;
    for (int i = 0; i < DATA_N(first); i++) {
        a.text.batch_size = a.columns.batch_size = i == 3 ? 7 : 127;
        a.text.first_batch = a.columns.first_batch = first[i];
        check_same(&a, 19001 - first[i] * a.text.batch_size);
    }
    a.text.first_batch = a.columns.first_batch = 0;
    a.text.batch_size = a.columns.batch_size = 8000; /* 8000, 8000, 3001 */
    a.text.share_count = a.columns.share_count = 2;
    a.text.share_index = a.columns.share_index = 1;
    check_same(&a, 8000);
    adult_close(&a);
}

TEST(a_cache_has_what_its_file_has)
{
    fl_cache_state state = {false};
    adult a;

    adult_open(&a);
    for (int i = 0; i < 3; i++) { /* it is made, read, and shuffled */
        a.columns.cache = &state;
        a.text.shuffle = a.columns.shuffle = i == 2 ? 500 : 0;
        check_same(&a, 19001);
    }
    CHECK(!state.is_off);
    CHECK(access(test_path("a.parquet.fleetcache"), R_OK) == 0);
    free(state.whole);
    adult_close(&a);
}

/* --- files of pyarrow ----------------------------------------------------- */

static const fleet_slot many[] = {
    {.name = "flag", COLUMNS("flag")},
    {.name = "reals", .dim = 2, COLUMNS("f32", "f64")},
    {.name = "small", COLUMNS("i8")},
    {.name = "u32",
     .dtype = FLEET_INT64,
     COLUMNS("u32"),
     TRANSFORM(FLEET_TRANSFORM_NONE)},
    {.name = "u64",
     .dtype = FLEET_INT64,
     COLUMNS("u64"),
     TRANSFORM(FLEET_TRANSFORM_NONE)},
    {.name = "text", .dtype = FLEET_INT64, COLUMNS("text")},
    {.name = "word", .dtype = FLEET_INT64, COLUMNS("word")},
    {.name = "ints",
     .dtype = FLEET_INT64,
     .dim = -1,
     COLUMNS("ints"),
     TRANSFORM(FLEET_TRANSFORM_NONE)},
    {.name = "texts", .dtype = FLEET_INT64, .dim = -1, COLUMNS("texts")},
    {.name = "member", COLUMNS("outer.member")}};

/* The same slots of JSON lines. */
static fleet_slot as_json[DATA_N(many)];

TEST(what_pyarrow_writes_is_what_json_lines_say)
{
    const char *source = getenv("FLEET_SOURCE");
    const char *lines = test_path("lines"), *path = test_path("rows.parquet");
    char command[2000], said[4000];
    fl_stream_spec spec;
    data_dump want, got;
    int rc;

    parquet_table();
    if (!source || access("/usr/bin/python3", X_OK) != 0)
        test_skip("no FLEET_SOURCE, or no /usr/bin/python3");
    for (int i = 0; i < DATA_N(many); i++)
        as_json[i] = (fleet_slot){
            .name = many[i].name, .dtype = many[i].dtype, .dim = many[i].dim};
    for (int how = 0; how < 4; how++) {
        snprintf(command, sizeof command,
                 "/usr/bin/python3 '%s/test/data/parquet_ref.py' %d '%s' '%s' "
                 "2>&1",
                 source, how, lines, path);
        rc = test_shell(command, said, sizeof said);
        if (rc == 77)
            test_skip("%s", said);
        if (rc != 0)
            test_fail(__FILE__, __LINE__, "%s", said);
        spec = data_spec(FLEET_JSON_LINES, as_json, DATA_N(many), &lines, 1);
        spec.batch_size = 97;
        want = data_read(&spec);
        CHECK_INT(want.rows, 3000);
        spec = spec_of(many, DATA_N(many), &path);
        spec.batch_size = 97;
        spec.shuffle = 0;
        got = data_read_n(spec, 1 + how % 2);
        CHECK_TEXT(got.error, want.error);
        CHECK(data_same(&got, &want));
        free(want.bytes);
        free(got.bytes);
    }
}

/* --- what is refused ------------------------------------------------------ */

static void refused(const fleet_slot *slot, const char *words, const char *more)
{
    const char *path = small_file();
    fl_stream_spec spec = spec_of(slot, 1, &path);

    DATA_FAILS(&spec, FLEET_EFORMAT, "small.parquet", words, more);
}

TEST(columns_that_are_not_there_or_of_another_kind_are_refused)
{
    refused(&(fleet_slot){.name = "s", COLUMNS("town")},
            "it has no column \"town\": it has \"click\", \"age\",",
            "\"vector\"");
    refused(&(fleet_slot){.name = "s", .dtype = FLEET_INT64, COLUMNS("score")},
            "column \"score\": expected integers or texts for slot \"s\"",
            "got real numbers");
    refused(&(fleet_slot){.name = "s", .dim = 2, COLUMNS("click", "vector")},
            "column \"vector\": expected single values for slot \"s\"",
            "got lists of real numbers");
    refused(&(fleet_slot){.name = "s", .dim = 4, COLUMNS("score")},
            "column \"score\": expected lists of 4", "got real numbers");
    refused(&(fleet_slot){.name = "s",
                          .dtype = FLEET_INT64,
                          .dim = -1,
                          COLUMNS("age"),
                          TRANSFORM(FLEET_WORDS)},
            "column \"age\": expected texts", "got integers");
}

TEST(rows_that_are_bad_are_named_and_may_be_left_out)
{
    const struct {
        fleet_slot slot;
        const char *words, *where;
    } bad[] = {
        {{.name = "s", .dtype = FLEET_INT64, COLUMNS("city"), .required = 1},
         "small.parquet:2: slot \"s\": expected a cell that is there",
         "(column \"city\", row group 0)"},
        {{.name = "s", .dim = 4, COLUMNS("vector")},
         "small.parquet:1: slot \"s\": expected 4 values, as its dim, or none, "
         "got \"3\"",
         "(column \"vector\", row group 0)"},
        {{.name = "s", COLUMNS("score"), TRANSFORM(FLEET_LOG1P)},
         "small.parquet:2: slot \"s\": expected a number above -1, for log1p, "
         "got \"-3\"",
         "(column \"score\", row group 0)"},
        {{.name = "s", COLUMNS("city")},
         "small.parquet:1: slot \"s\": expected a finite number, got \"Paris\"",
         "(column \"city\", row group 0)"}};
    static const int64_t left[] = {2, 1, 2, 1};
    const char *path = small_file();

    for (int i = 0; i < DATA_N(bad); i++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            fl_stream_spec spec = spec_of(&bad[i].slot, 1, &path);
            data_dump d;

            spec.batch_size = 1; /* so that the first bad row is said */
            spec.shuffle = shuffle * 10;
            if (!shuffle || left[i] == 2) /* there is but one */
                DATA_FAILS(&spec, FLEET_EFORMAT, bad[i].words, bad[i].where);
            spec.max_bad_lines = 3;
            spec.batch_size = 3;
            d = data_read(&spec);
            CHECK_INT(d.status, FLEET_EEND);
            CHECK_INT(d.rows, left[i]);
            free(d.bytes);
        }
}

TEST(numbers_that_no_slot_has_are_refused)
{
    static const char *const name[] = {"a", "b"};
    const fleet_slot id = {.name = "s",
                           .dtype = FLEET_INT64,
                           COLUMNS("a"),
                           TRANSFORM(FLEET_TRANSFORM_NONE)};
    const fleet_slot x = {.name = "s", COLUMNS("b")};
    const char *path = test_path("numbers.parquet");
    fl_stream_spec spec = spec_of(&id, 1, &path);
    parquet_sheet s;

    parquet_open(&s, path, name, "ir");
    for (int i = 0; i < 200; i++) {
        parquet_int(&s, 0, i == 150 ? -3 : i);
        parquet_real(&s, 1, i == 170 ? NAN : i == 180 ? 1e300 : i);
        if (i == 99)
            parquet_group(&s);
    }
    parquet_close(&s);
    DATA_FAILS(&spec, FLEET_EFORMAT, "numbers.parquet:151: slot \"s\"",
               "an id (an integer from 0 to 2^64 - 1), got \"-3\"",
               "(column \"a\", row group 1)");
    spec.batch_size = 100; /* the first group is passed over */
    spec.first_batch = 1;
    DATA_FAILS(&spec, FLEET_EFORMAT, "numbers.parquet:151: slot");
    spec.batch_size = 2;
    spec.first_batch = 0;
    spec.slots = &x;
    DATA_FAILS(&spec, FLEET_EFORMAT, "numbers.parquet:171: slot \"s\"",
               "a finite number, got \"nan\"", "row group 1");
    spec.max_bad_lines = 1;
    DATA_FAILS(&spec, FLEET_EFORMAT, "2 bad lines", "181: slot \"s\"");
}

/* A block has rows of several batches, and a column with nulls or without. */
static const char *kinds_file(void)
{
    static const char *const name[] = {"i", "u", "r", "n"};
    const char *path = test_path("kinds.parquet");
    parquet_sheet s;

    parquet_open(&s, path, name, "iuri");
    for (int i = 0; i < 300; i++) {
        parquet_int(&s, 0, i);
        parquet_int(&s, 1, INT64_MIN + i); /* 2^63 + i */
        parquet_real(&s, 2, i - 0.5);
        if (i % 100 == 7)
            parquet_null(&s, 3);
        else
            parquet_int(&s, 3, 1000 - i);
        if (i == 199)
            parquet_group(&s);
    }
    parquet_close(&s);
    return path;
}

static void check_kinds(const fl_batch *b, int first)
{
    const float *x = b->slot[0].values;
    const int64_t *from_i = b->slot[1].values, *from_u = b->slot[2].values;

    for (int r = 0; r < b->rows; r++, x += 4) {
        const int i = first + r;

        CHECK(x[0] == (float)(1000 - i) || (i % 100 == 7 && x[0] == 0));
        CHECK(x[1] == (float)i - 0.5f && x[2] == (float)i);
        CHECK(x[3] == 0x1p63f);
        CHECK_INT(from_i[r], i);
        CHECK(from_u[r] == INT64_MIN + i);
    }
}

TEST(numbers_of_each_kind_are_copied_side_by_side)
{
    const fleet_slot kinds[] = {
        {.name = "x", .dim = 4, COLUMNS("n", "r", "i", "u")},
        {.name = "i",
         .dtype = FLEET_INT64,
         COLUMNS("i"),
         TRANSFORM(FLEET_TRANSFORM_NONE)},
        {.name = "u",
         .dtype = FLEET_INT64,
         COLUMNS("u"),
         TRANSFORM(FLEET_TRANSFORM_NONE)}};
    const char *path = kinds_file();
    fl_stream_spec spec = spec_of(kinds, 3, &path);
    fl_stream *stream;
    const int batch = 7;
    int rows = 0;

    spec.batch_size = batch;
    CHECK_OK(fl_stream_open(&stream, &spec));
    for (fl_batch *b; fl_stream_next(stream, &b) == FLEET_OK;) {
        check_kinds(b, rows);
        rows += (int)b->rows;
        fl_stream_release(stream, b);
    }
    fl_stream_close(stream);
    CHECK_INT(rows, 300);
}

TEST(options_that_parquet_has_not_are_refused)
{
    const char *path = small_file();
    const fleet_slot weighted = {.name = "w",
                                 .dtype = FLEET_INT64,
                                 .dim = -1,
                                 .weighted = 1,
                                 COLUMNS("tags")};
    static const fleet_slot none = {.name = "w"};
    fl_stream_spec spec = spec_of(&weighted, 1, &path);

    DATA_FAILS(&spec, FLEET_ECONFIG, "slot \"w\": ", "without weights");
    spec.slots = &none;
    DATA_FAILS(&spec, FLEET_ECONFIG, "slot \"w\": ", "needs columns");
    spec = spec_of(slots, N_SLOT, &path);
    spec.header = 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "header: only csv files have it");
    spec = spec_of(slots, N_SLOT, &path);
    spec.pipe_command = "tac";
    DATA_FAILS(&spec, FLEET_ECONFIG, "pipe_command: not for Parquet files");
}

/* --- files that are none -------------------------------------------------- */

TEST(what_is_no_file_of_parquet_is_refused)
{
    const char *path = test_file("part", "click,age\n1,2\n");
    fl_stream_spec spec = spec_of(slots, N_SLOT, &path);

    parquet_table();
    DATA_FAILS(&spec, FLEET_ECORRUPT, "part: ", "Parquet");
    path = test_file("empty", "");
    DATA_FAILS(&spec, FLEET_ECORRUPT, "empty: ", "Parquet");
    path = test_path("nothing");
    DATA_FAILS(&spec, FLEET_ENOENT, "nothing");
    CHECK_INT(mkfifo(test_path("fifo"), 0600), 0);
    path = test_path("fifo");
    DATA_FAILS(&spec, FLEET_EUNSUPPORTED, "fifo: ", "a regular file");
    path = test_folder();
    DATA_FAILS(&spec, FLEET_EUNSUPPORTED, "a regular file");
}

TEST(a_file_that_was_not_finished_is_none_of_parquet)
{
    const fl_parquet_table *table = parquet_table();
    const char *path = test_path("abandoned");
    fl_parquet_column column = {.name = "x", .kind = FL_PARQUET_INT};
    const int64_t value = 7;
    const fl_parquet_piece piece = {.n = 1, .values = &value};
    fl_parquet_writer *writer;
    fl_parquet_file *file;

    CHECK_OK(table->create(path, &column, 1, &writer));
    CHECK_OK(table->write(writer, 1, &piece));
    table->abandon(writer);
    CHECK(table->open(path, NULL, 0, &column, 1, &file) == FLEET_ECORRUPT);
}

TEST(a_file_without_rows_has_no_batches)
{
    const char *path = test_path("empty.parquet");
    fl_stream_spec spec = spec_of(slots, 1, &path);
    parquet_sheet s;
    data_dump d;

    parquet_open(&s, path, names, "iirtTR");
    parquet_close(&s);
    d = data_read(&spec);
    CHECK_INT(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 0);
    free(d.bytes);
}

static char bytes[1 << 16];

static size_t read_small(void)
{
    FILE *f = fopen(small_file(), "rb");
    size_t n = fread(bytes, 1, sizeof bytes, f);

    fclose(f);
    CHECK(n > 100 && n < sizeof bytes);
    return n;
}

/* Each length that is shorter, and each byte that has changed: in a page its
 * checksum says so, elsewhere whatever Arrow makes of it, but no rows more than
 * there are, and no crash. */
TEST(files_that_are_cut_or_damaged_end_with_an_error)
{
    const size_t n = read_small();
    const int fds = data_open_fds();
    int64_t corrupt = 0, tried = 0;
    const char *path;

    for (size_t i = 0; i < n; i += 1 + n / 200) {
        fl_stream_spec spec;

        path = test_file_bytes("cut", bytes, i);
        spec = spec_of(slots, N_SLOT, &path);
        DATA_FAILS(&spec, FLEET_ECORRUPT, "cut: ");
    }
    for (size_t i = 0; i < n; i += 1 + n / (2000 / (size_t)test_fraction())) {
        fl_stream_spec spec;
        data_dump d;

        bytes[i] ^= 0x10;
        path = test_file_bytes("damaged", bytes, n);
        spec = spec_of(slots, N_SLOT, &path);
        d = data_read(&spec);
        CHECK(d.status != FLEET_OK && d.rows <= 3);
        corrupt += d.status == FLEET_ECORRUPT;
        tried++;
        bytes[i] ^= 0x10;
        free(d.bytes);
    }
    CHECK(10 * corrupt > tried);
    CHECK_INT(data_open_fds(), fds);
}

/* The first byte behind the magic is of the first column's page. */
TEST(damage_is_named_with_its_column_and_group)
{
    const size_t n = read_small();
    const char *path;
    fl_stream_spec spec;
    bool named = false;

    for (size_t i = 4; i < 200 && !named; i++) {
        data_dump d;

        bytes[i] ^= 1;
        path = test_file_bytes("damaged", bytes, n);
        spec = spec_of(slots, N_SLOT, &path);
        d = data_read(&spec);
        named = d.status == FLEET_ECORRUPT &&
                strstr(d.error, "damaged: column \"click\", row group 0: ");
        bytes[i] ^= 1;
        free(d.bytes);
    }
    CHECK(named);
}

enum { SHORT = 9000, LONG = 120, SIZE = 50000 };

static data_dump read_skewed(const char *name, int group)
{
    const char *path = test_path(name);
    const fleet_slot wanted[] = {
        {.name = "age", .dim = -1, COLUMNS("age")},
        {.name = "tags", .dtype = FLEET_INT64, .dim = -1, COLUMNS("tags")},
        {.name = "vector", .dim = -1, COLUMNS("vector")}};
    static char text[SIZE];
    fl_stream_spec spec = spec_of(wanted, 3, &path);
    parquet_sheet s;

    memset(text, 'x', sizeof text);
    parquet_open(&s, path, names, "iirtTR");
    for (int i = 0; i < SHORT + LONG; i++) {
        put_row(&s, i, 0, i % 3 ? "" : NULL);
        for (int k = 0; k < (i >= SHORT ? 3 : i % 2); k++)
            parquet_text(&s, 4, text, (size_t)(i >= SHORT ? SIZE - i % 7 : k));
        parquet_list(&s, 4);
        for (int k = 0; k < (i >= SHORT ? 3000 : i % 2); k++)
            parquet_real(&s, 5, i + k);
        parquet_list(&s, 5);
        if (i % group == group - 1)
            parquet_group(&s);
    }
    parquet_close(&s);
    return data_read(&spec);
}

/* Behind short rows, by which blocks have many, come long ones. */
TEST(rows_that_are_much_longer_than_those_before_come_in_pieces)
{
    data_dump a = read_skewed("one.parquet", SHORT + LONG);
    data_dump b = read_skewed("small.parquet", 8);

    CHECK_INT(a.status, FLEET_EEND);
    CHECK_INT(a.rows, SHORT + LONG);
    CHECK(a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0);
    free(a.bytes);
    free(b.bytes);
}

/* How many rows a group has is the last place where the file says it. */
/* So many that they are read ahead of the blocks, in two groups; from some row
 * on each seventh number is null. */
TEST(numbers_that_are_read_ahead_keep_their_rows_and_their_nulls)
{
    enum { ROWS = 70000, FIRST_NULL = 30000 };
    static const char *const column[] = {"x", "id"};
    const fleet_slot two[] = {{.name = "x", COLUMNS("x")},
                              {.name = "id",
                               .dtype = FLEET_INT64,
                               COLUMNS("id"),
                               TRANSFORM(FLEET_TRANSFORM_NONE)}};
    const char *path[] = {test_keep(test_path("ahead.parquet")), NULL};
    char *text = malloc(ROWS * 24 + 8), *to = text + sprintf(text, "x,id\n");
    fl_stream_spec spec = spec_of(two, 2, path);
    data_dump got, want;
    parquet_sheet s;

    parquet_open(&s, path[0], column, "ri");
    for (int i = 0; i < ROWS; i++) {
        if (i > FIRST_NULL && i % 7 == 3) {
            parquet_null(&s, 0);
            to += sprintf(to, ",%d\n", i);
        } else {
            parquet_real(&s, 0, i * 0.5);
            to += sprintf(to, "%.1f,%d\n", i * 0.5, i);
        }
        parquet_int(&s, 1, i);
        if (i == 66000)
            parquet_group(&s);
    }
    parquet_close(&s);
    spec.batch_size = 777;
    got = data_read(&spec);
    path[0] = test_file("ahead.csv", text);
    spec.format = FLEET_CSV;
    spec.header = true;
    want = data_read(&spec);
    CHECK_INT(got.rows, ROWS);
    CHECK(data_same(&got, &want));
    free(got.bytes);
    free(want.bytes);
    free(text);
}

/* Rows of a megabyte that cannot be compressed, in groups of so many. */
static data_dump long_rows(const char *name, int at_once)
{
    enum { TEXTS = 34, MB = 1 << 20 };
    static const char *const column[] = {"text", "id"};
    const fleet_slot two[] = {
        {.name = "text", .dtype = FLEET_INT64, COLUMNS("text")},
        {.name = "id",
         .dtype = FLEET_INT64,
         COLUMNS("id"),
         TRANSFORM(FLEET_TRANSFORM_NONE)}};
    const char *path = test_keep(test_path(name));
    char *text = malloc(MB);
    fl_stream_spec spec = spec_of(two, 2, &path);
    uint64_t state = 9;
    parquet_sheet s;
    data_dump d;

    parquet_open(&s, path, column, "ti");
    for (int i = 0; i < TEXTS; i++) {
        for (int k = 0; k < MB; k += 8) {
            const uint64_t word = data_random(&state);

            memcpy(text + k, &word, 8);
        }
        parquet_text(&s, 0, text, MB);
        parquet_int(&s, 1, i);
        if (i % at_once == at_once - 1)
            parquet_group(&s);
    }
    parquet_close(&s);
    d = data_read(&spec);
    CHECK_INT(d.rows, TEXTS);
    free(text);
    return d;
}

/* One group takes more than is read as a whole. */
TEST(columns_that_are_read_through_buffers_are_those_that_are_read_as_wholes)
{
    data_dump large = long_rows("large.parquet", 34);
    data_dump small = long_rows("small.parquet", 4);

    CHECK(data_same(&large, &small));
    free(large.bytes);
    free(small.bytes);
}

TEST(a_group_that_has_fewer_rows_than_the_file_says_is_damage)
{
    const char *path = test_path("whole.parquet");
    fl_stream_spec spec = spec_of(slots, 1, &path);
    parquet_sheet s;
    size_t n, last = 0;
    FILE *f;

    parquet_open(&s, path, names, "i");
    for (int i = 0; i < 1000; i++)
        parquet_int(&s, 0, i % 2);
    parquet_close(&s);
    f = fopen(path, "rb");
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    CHECK(n > 100 && n < sizeof bytes);
    for (size_t i = 0; i + 2 < n; i++)
        if (memcmp(bytes + i, "\xd0\x0f", 2) == 0) /* 1000, as Thrift has it */
            last = i;
    memcpy(bytes + last, "\xc8\x01", 2);
    path = test_file_bytes("fewer.parquet", bytes, n);
    DATA_FAILS(&spec, FLEET_ECORRUPT, "fewer.parquet: ", "as many rows");
}

/* --- the plug-in, memory -------------------------------------------------- */

TEST(without_the_plug_in_it_is_named)
{
    const char *path = test_file("libfleet_arrow.so", "no library\n");
    fl_stream_spec spec = spec_of(slots, N_SLOT, &path);

    setenv("FLEET_PLUGIN_PATH", test_folder(), 1);
    DATA_FAILS(&spec, FLEET_EUNSUPPORTED,
               "format parquet needs the plug-in libfleet_arrow.so",
               "make arrow");
}

TEST(without_memory_reading_ends_with_an_error)
{
    const char *path = small_file();
    fl_stream_spec spec = spec_of(slots, N_SLOT, &path);

    data_check_memory(&spec, 3);
    spec.shuffle = 5;
    data_check_memory(&spec, 3);
}
