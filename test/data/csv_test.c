/* csv_test.c - csv: cells, headers, transforms, statistics. */
#define SUITE csv
#include "data_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/text/csv_cells.h"

/* --- cells ---------------------------------------------------------------- */

/* The cells of a line, each followed by '|'. */
static const char *cut(const char *line, char separator)
{
    static fl_csv_cells c;
    static char memory[FL_TEXT_PAD + 5000 + FL_TEXT_PAD], out[6000];
    char *text = memory + FL_TEXT_PAD;
    const char *wrong;
    size_t n = 0;

    strcpy(text, line);
    CHECK_OK(fl_csv_cells_cut(&c, fl_kernels_best(), text, strlen(text),
                              separator, &wrong));
    if (wrong)
        return wrong;
    for (size_t i = 0; i < c.n; i++)
        n += (size_t)sprintf(out + n, "%.*s|",
                             (int)(c.cell[i].end - c.cell[i].text),
                             c.cell[i].text);
    out[n] = 0;
    return out;
}

TEST(cells_are_trimmed)
{
    CHECK_TEXT(cut("a,b,c", ','), "a|b|c|");
    CHECK_TEXT(cut(" a , b\t,  c c ", ','), "a|b|c c|");
    CHECK_TEXT(cut("", ','), "|");
    CHECK_TEXT(cut(",", ','), "||");
    CHECK_TEXT(cut(", ,", ','), "|||");
    CHECK_TEXT(cut("a\tb\t\tc", '\t'), "a|b||c|");
    CHECK_TEXT(cut("a b  c", ' '), "a|b||c|");
    CHECK_TEXT(cut("a;b", ','), "a;b|");
}

TEST(quotes_are_as_in_rfc_4180)
{
    CHECK_TEXT(cut("\"a\",b", ','), "a|b|");
    CHECK_TEXT(cut("\"a,b\",c", ','), "a,b|c|");
    CHECK_TEXT(cut("\"a\"\"b\",\"\"\"\"", ','), "a\"b|\"|");
    CHECK_TEXT(cut("\"\",x", ','), "|x|");
    CHECK_TEXT(cut(" \" a \" , b", ','), " a |b|");
    CHECK_TEXT(cut("a\"b,c\"", ','), "a\"b|c\"|");
    CHECK_TEXT(cut("x,\"a\"", ','), "x|a|");
    CHECK_TEXT(cut("\"a\"\t\"b\"", '\t'), "a|b|");
    CHECK_TEXT(cut("\"a\"\"b\"  ", ','), "a\"b|");
    CHECK_CONTAINS(cut("\"a", ','), "a quote at the end");
    CHECK_CONTAINS(cut("x,\"", ','), "a quote at the end");
    CHECK_CONTAINS(cut("\"a\"\"", ','), "a quote at the end");
    CHECK_CONTAINS(cut("\"a\"b,c", ','), "a separator after");
}

TEST(lines_of_many_cells_are_cut)
{
    char line[5000], want[6000];

    for (int quoted = 0; quoted < 2; quoted++) {
        size_t n = 0, m = 0;

        for (int i = 0; i < 1400; i++) {
            n += (size_t)sprintf(line + n, "%s%d", i ? "," : "", i % 13);
            m += (size_t)sprintf(want + m, "%d|", i % 13);
        }
        if (quoted) {
            strcpy(line + n, ",\"q\"");
            strcpy(want + m, "q|");
        }
        CHECK_TEXT(cut(line, ','), want);
    }
}

/* --- slots ---------------------------------------------------------------- */

static const char *const first[] = {"0"}, *const second[] = {"1"},
                         *const third[] = {"2"}, *const yes[] = {"yes", "y"};
static const fleet_transform hash = FLEET_HASH, equals = FLEET_EQUALS,
                             none = FLEET_TRANSFORM_NONE,
                             logarithm = FLEET_LOG1P;

static fl_stream_spec spec_of(const fleet_slot *slots, int n, const char *text)
{
    static const char *files[1];

    files[0] = test_file("table.csv", text);
    return data_spec(FLEET_CSV, slots, n, files, 1);
}

static float number(const fl_batch *b, int slot, int row)
{
    return ((const float *)b->slot[slot].values)[row];
}

static uint64_t id(const fl_batch *b, int slot, int row)
{
    return ((const uint64_t *)b->slot[slot].values)[row];
}

TEST(each_transform_makes_what_it_says)
{
    const fleet_slot slots[] = {{.name = "x", .columns = first, .n_column = 1},
                                {.name = "log",
                                 .columns = first,
                                 .n_column = 1,
                                 .transforms = &logarithm,
                                 .n_transform = 1},
                                {.name = "name",
                                 .dtype = FLEET_INT64,
                                 .columns = second,
                                 .n_column = 1},
                                {.name = "name again",
                                 .dtype = FLEET_INT64,
                                 .columns = second,
                                 .n_column = 1,
                                 .transforms = &hash,
                                 .n_transform = 1},
                                {.name = "is yes",
                                 .columns = third,
                                 .n_column = 1,
                                 .transforms = &equals,
                                 .n_transform = 1,
                                 .equals = yes,
                                 .n_equals = 2},
                                {.name = "class",
                                 .dtype = FLEET_INT64,
                                 .columns = third,
                                 .n_column = 1,
                                 .transforms = &equals,
                                 .n_transform = 1,
                                 .equals = yes,
                                 .n_equals = 2},
                                {.name = "id",
                                 .dtype = FLEET_INT64,
                                 .columns = first,
                                 .n_column = 1,
                                 .transforms = &none,
                                 .n_transform = 1}};
    fl_stream_spec spec = spec_of(slots, DATA_N(slots),
                                  "41, Bob ,yes\n7,\"Ann, B\",y\n\n0,,no\n");
    const fl_batch *b;

    spec.batch_size = 3;
    b = data_first(&spec);
    CHECK_INT(b->rows, 3);
    CHECK(number(b, 0, 0) == 41.0f && number(b, 0, 2) == 0.0f);
    CHECK(number(b, 1, 0) == (float)log1p(41.0));
    CHECK(id(b, 2, 0) == fl_hash("Bob", 3, 2));
    CHECK(id(b, 3, 0) == fl_hash("Bob", 3, 3));
    CHECK(id(b, 2, 1) == fl_hash("Ann, B", 6, 2));
    CHECK(id(b, 2, 2) == fl_hash("", 0, 2));
    CHECK(number(b, 4, 0) == 1.0f && number(b, 4, 1) == 1.0f);
    CHECK(number(b, 4, 2) == 0.0f);
    CHECK_INT(id(b, 5, 1), 1);
    CHECK_INT(id(b, 5, 2), 0);
    CHECK_INT(id(b, 6, 0), 41);
}

TEST(missing_cells_are_0_or_the_id_of_the_empty_text)
{
    const fleet_slot slots[] = {
        {.name = "x", .columns = first, .n_column = 1},
        {.name = "log",
         .columns = first,
         .n_column = 1,
         .transforms = &logarithm,
         .n_transform = 1},
        {.name = "h", .dtype = FLEET_INT64, .columns = first, .n_column = 1},
        {.name = "id",
         .dtype = FLEET_INT64,
         .columns = first,
         .n_column = 1,
         .transforms = &none,
         .n_transform = 1},
        {.name = "eq",
         .columns = first,
         .n_column = 1,
         .transforms = &equals,
         .n_transform = 1,
         .equals = (const char *const[]){"?"},
         .n_equals = 1}};
    fl_stream_spec spec = spec_of(slots, DATA_N(slots), "?,1\n,1\n\"\",1\n");
    const fl_batch *b;

    spec.missing = "?";
    spec.batch_size = 3;
    b = data_first(&spec);
    CHECK_INT(b->rows, 3);
    for (int r = 0; r < 3; r++) {
        CHECK(number(b, 0, r) == 0.0f && number(b, 1, r) == 0.0f);
        CHECK(id(b, 2, r) == fl_hash("", 0, 2));
        CHECK(id(b, 3, r) == fl_hash("", 0, 3));
        CHECK(number(b, 4, r) == 0.0f);
    }
}

TEST(a_ragged_slot_takes_the_cells_that_are_not_missing)
{
    const char *const columns[] = {"0", "2", "1"};
    const fleet_transform three[] = {FLEET_HASH, FLEET_TRANSFORM_NONE,
                                     FLEET_HASH};
    const fleet_slot slots[] = {
        {.name = "tags",
         .dtype = FLEET_INT64,
         .dim = -1,
         .columns = columns,
         .n_column = 3,
         .transforms = three,
         .n_transform = 3},
        {.name = "numbers", .dim = -1, .columns = columns + 1, .n_column = 1}};
    fl_stream_spec spec = spec_of(slots, 2, "a,b,3\n?,,?\n,b,4\nc,?,\n");
    const fl_batch *b;

    spec.missing = "?";
    spec.batch_size = 4;
    b = data_first(&spec);
    CHECK_INT(b->slot[0].offsets[1], 3);
    CHECK_INT(b->slot[0].offsets[2], 3);
    CHECK_INT(b->slot[0].offsets[3], 5);
    CHECK_INT(b->slot[0].offsets[4], 6);
    CHECK(id(b, 0, 0) == fl_hash("a", 1, 0));
    CHECK_INT(id(b, 0, 1), 3);
    CHECK(id(b, 0, 2) == fl_hash("b", 1, 0));
    CHECK_INT(id(b, 0, 3), 4);
    CHECK_INT(b->slot[1].offsets[4], 2);
    CHECK(number(b, 1, 1) == 4.0f);
}

TEST(a_ragged_slot_that_is_required_has_a_cell_in_each_line)
{
    const char *const columns[] = {"0", "2"};
    const fleet_transform words = FLEET_WORDS;
    fleet_slot slot = {.name = "tags",
                       .dtype = FLEET_INT64,
                       .dim = -1,
                       .columns = columns,
                       .n_column = 2,
                       .required = 1};
    fl_stream_spec spec = spec_of(&slot, 1, "a,x,b\n,y,b\n?,z,\nc,,?\n");

    spec.missing = "?";
    DATA_FAILS(&spec, FLEET_EFORMAT, "table.csv:3: slot \"tags\"",
               "a value that is there", "got \"?,z,\"");
    spec.max_bad_lines = 1;
    CHECK_INT(data_read(&spec).rows, 3);
    slot.transforms = &words;
    slot.n_transform = 1;
    spec = spec_of(&slot, 1, "a b,,\n-!,,c\n-,,.\n");
    DATA_FAILS(&spec, FLEET_EFORMAT, "table.csv:3: slot \"tags\"");
}

TEST(a_weight_stands_behind_the_last_colon_of_a_cell)
{
    const char *const columns[] = {"0", "1"};
    const fleet_transform two[] = {FLEET_HASH, FLEET_TRANSFORM_NONE};
    const fleet_slot slot = {.name = "tags",
                             .dtype = FLEET_INT64,
                             .dim = -1,
                             .columns = columns,
                             .n_column = 2,
                             .transforms = two,
                             .n_transform = 2,
                             .weighted = 1};
    fl_stream_spec spec = spec_of(&slot, 1, "a:b:0.5,7:-2\n?,8\nc,\n");
    const fl_batch *b;

    spec.missing = "?";
    spec.batch_size = 3;
    b = data_first(&spec);
    CHECK_INT(b->slot[0].offsets[1], 2);
    CHECK_INT(b->slot[0].offsets[2], 3);
    CHECK_INT(b->slot[0].offsets[3], 4);
    CHECK(id(b, 0, 0) == fl_hash("a:b", 3, 0));
    CHECK(id(b, 0, 1) == 7 && id(b, 0, 2) == 8);
    CHECK(id(b, 0, 3) == fl_hash("c", 1, 0));
    CHECK(b->slot[0].weights[0] == 0.5f && b->slot[0].weights[1] == -2.0f);
    CHECK(b->slot[0].weights[2] == 1.0f && b->slot[0].weights[3] == 1.0f);
    spec = spec_of(&slot, 1, "a,1\na:b,1\n");
    DATA_FAILS(&spec, FLEET_EFORMAT, ":2: slot \"tags\"",
               "behind its last colon a finite number, got \"a:b\"");
    spec = spec_of(&slot, 1, ":0.5,1\n");
    DATA_FAILS(&spec, FLEET_EFORMAT, ":1: slot \"tags\"", "got \":0.5\"");
}

TEST(several_columns_make_one_dense_slot)
{
    const char *const columns[] = {"2", "0", "2"};
    const fleet_transform three[] = {FLEET_TRANSFORM_NONE, FLEET_LOG1P,
                                     FLEET_LOG1P};
    const fleet_slot slot = {.name = "x",
                             .dim = 3,
                             .columns = columns,
                             .n_column = 3,
                             .transforms = three,
                             .n_transform = 3};
    fl_stream_spec spec = spec_of(&slot, 1, "1,x,3\n4,y,6\n");
    const fl_batch *b = data_first(&spec);

    CHECK(number(b, 0, 0) == 3.0f);
    CHECK(number(b, 0, 1) == (float)log1p(1.0));
    CHECK(number(b, 0, 3) == 6.0f);
    CHECK(number(b, 0, 5) == (float)log1p(6.0));
}

TEST(columns_are_found_by_the_header_of_each_file)
{
    static const char *const columns[] = {"b", "1"};
    static const fleet_slot slot = {
        .name = "x", .dim = 2, .columns = columns, .n_column = 2};
    static const char *files[5]; /* the stream outlives the test */
    fl_stream_spec spec = data_spec(FLEET_CSV, &slot, 1, files, 5);
    const fl_batch *b;

    files[0] = test_file("1.csv", "junk\n# comment\n\"a\", b ,c\n1,2,3\n");
    files[1] = test_file("2.csv", "");
    files[2] = test_file("3.csv", "more junk");
    files[3] = test_file("4.csv", "junk,,\nb,1\r\n#4,5\n4,5\r\n");
    files[4] = test_file("5.csv", "junk\nb,c");
    spec.header = 1;
    spec.skip_lines = 1;
    spec.comment = '#';
    b = data_first(&spec);
    CHECK_INT(b->rows, 2);
    CHECK(number(b, 0, 0) == 2.0f && number(b, 0, 1) == 2.0f);
    CHECK(number(b, 0, 2) == 4.0f && number(b, 0, 3) == 5.0f);
}

TEST(a_byte_order_mark_is_no_part_of_the_first_cell)
{
    const char *const columns[] = {"a"};
    const fleet_slot slot = {.name = "x", .columns = columns, .n_column = 1};
    fl_stream_spec spec = spec_of(&slot, 1,
                                  "\xEF\xBB\xBF"
                                  "a,b\n1,2\n");

    spec.header = 1;
    CHECK(number(data_first(&spec), 0, 0) == 1.0f);
}

TEST(headers_without_a_column_are_refused)
{
    const char *columns[] = {"price"};
    const fleet_slot slot = {.name = "x", .columns = columns, .n_column = 1};
    fl_stream_spec spec = spec_of(&slot, 1, "a,b\n1,2\n");

    spec.header = 1;
    DATA_FAILS(&spec, FLEET_EFORMAT, "table.csv", "no column \"price\"");
    spec = spec_of(&slot, 1, "price,b,price\n1,2,3\n");
    spec.header = 1;
    DATA_FAILS(&spec, FLEET_EFORMAT, "table.csv", "\"price\" twice");
    columns[0] = ""; /* no position, though it has no other letters */
    DATA_FAILS(&spec, FLEET_EFORMAT, "table.csv", "no column \"\"");
}

static void refused(const char *line, fleet_transform t, bool header,
                    const char *words, const char *more)
{
    const fleet_slot slots[] = {{.name = "x",
                                 .columns = first,
                                 .n_column = 1,
                                 .transforms = &t,
                                 .n_transform = 1},
                                {.name = "id",
                                 .dtype = FLEET_INT64,
                                 .columns = third,
                                 .n_column = 1,
                                 .transforms = &none,
                                 .n_transform = 1}};
    char text[1000];
    fl_stream_spec spec;

    snprintf(text, sizeof text, "0,1,2\n1,2,3\n%s\n1,2,3\n", line);
    spec = spec_of(slots, 2, text);
    spec.header = header;
    DATA_FAILS(&spec, FLEET_EFORMAT, "table.csv:3: ", words, more);
}

TEST(bad_lines_are_refused_with_file_line_and_slot)
{
    refused("x,2,3", FLEET_TRANSFORM_NONE, 0, "slot \"x\"", "got \"x\"");
    refused("nan,2,3", FLEET_TRANSFORM_NONE, 0, "slot \"x\"", "finite number");
    refused("inf,2,3", FLEET_LOG1P, 0, "slot \"x\"", "finite number");
    refused("1e39,2,3", FLEET_TRANSFORM_NONE, 0, "slot \"x\"", "finite");
    refused("-1,2,3", FLEET_LOG1P, 0, "slot \"x\"", "above -1");
    refused("1,2,3.7", FLEET_TRANSFORM_NONE, 0, "slot \"id\"", "got \"3.7\"");
    refused("1,2,-3", FLEET_TRANSFORM_NONE, 0, "slot \"id\"", "got \"-3\"");
    refused("1,2", FLEET_TRANSFORM_NONE, 0, "3 cells or more", "2 here");
    refused("1,2", FLEET_TRANSFORM_NONE, 1, "3 cells, as its header has",
            "2 here");
    refused("1,2,3,4", FLEET_TRANSFORM_NONE, 1, "3 cells", "4 here");
    refused("1,\"2,3", FLEET_TRANSFORM_NONE, 0, "a quote at the end", "\"1,");
    refused("1,\"2\"3,4", FLEET_TRANSFORM_NONE, 0, "a separator after", "\"1,");
}

/* --- statistics ----------------------------------------------------------- */

static const char *const five[] = {"0", "1", "2", "3", "4"};
static const fleet_transform standard[] = {
    FLEET_STANDARDIZE, FLEET_LOG1P_STANDARDIZE, FLEET_TRANSFORM_NONE,
    FLEET_STANDARDIZE, FLEET_STANDARDIZE};
static const fleet_slot wide = {.name = "x",
                                .dim = 5,
                                .columns = five,
                                .n_column = 5,
                                .transforms = standard,
                                .n_transform = 5};

/* A column far from 0, one for log1p, one of other text, one that is constant
 * and one without a number. */
static const char *write_table(int rows, double *mean, double *deviation)
{
    char *text = malloc((size_t)rows * 100), *s = text;
    double *x = malloc((size_t)rows * 2 * sizeof *x);
    uint64_t state = 4;
    int n = 0;

    for (int i = 0; i < rows; i++) {
        int a = (int)(data_random(&state) % 1000);

        if (i % 7 == 0) {
            s += sprintf(s, "?,%d,text,5,?\n", a);
        } else {
            s += sprintf(s, "%d,%d,text,5,?\n", 1000000000 + a, a);
            x[n++] = 1e9 + a;
        }
        x[rows + i] = log1p(a);
    }
    for (int c = 0; c < 2; c++) {
        int count = c ? rows : n;
        long double sum = 0, squares = 0;

        for (int i = 0; i < count; i++)
            sum += x[c * rows + i];
        mean[c] = (double)(sum / count);
        for (int i = 0; i < count; i++)
            squares += (x[c * rows + i] - sum / count) *
                       (x[c * rows + i] - sum / count);
        deviation[c] = (double)sqrtl(squares / count);
    }
    free(x);
    *s = 0;
    const char *path = test_file("wide.csv", text);
    free(text);
    return path;
}

TEST(statistics_are_those_of_the_numbers_that_are_there)
{
    double mean[2], deviation[2];
    const char *files[] = {write_table(20000, mean, deviation)};
    fl_stream_spec spec = data_spec(FLEET_CSV, &wide, 1, files, 1);
    fl_statistics s, again;

    spec.missing = "?";
    CHECK_OK(fl_stream_statistics(&spec, &s));
    CHECK_INT(s.n, 4);
    for (int i = 0; i < 2; i++) {
        CHECK(fabs(s.mean[i] / mean[i] - 1) < 1e-14);
        CHECK(fabs(s.deviation[i] / deviation[i] - 1) < 1e-10);
    }
    CHECK(s.mean[2] == 5 && s.deviation[2] == 1);
    CHECK(s.mean[3] == 0 && s.deviation[3] == 1);

    /* neither threads, batches, shares nor the order of the batches matter */
    spec.n_thread = 4;
    spec.batch_size = 17;
    spec.share_count = 3;
    spec.shuffle = 1000;
    CHECK_OK(fl_stream_statistics(&spec, &again));
    CHECK(!memcmp(s.mean, again.mean, 4 * sizeof *s.mean));
    CHECK(!memcmp(s.deviation, again.deviation, 4 * sizeof *s.mean));
    fl_statistics_done(&s);
    fl_statistics_done(&again);
}

TEST(standardized_numbers_use_the_statistics)
{
    const fleet_transform two[] = {FLEET_STANDARDIZE, FLEET_LOG1P_STANDARDIZE};
    const fleet_slot slots[] = {{.name = "x",
                                 .dim = 2,
                                 .columns = five,
                                 .n_column = 2,
                                 .transforms = two,
                                 .n_transform = 2},
                                {.name = "y",
                                 .columns = five,
                                 .n_column = 1,
                                 .transforms = two,
                                 .n_transform = 1}};
    double mean[] = {3, 0.5, -1}, deviation[] = {2, 4, 1e-5};
    const fl_statistics s = {.n = 3, .mean = mean, .deviation = deviation};
    fl_stream_spec spec = spec_of(slots, 2, "7,1\n,\n");
    const fl_batch *b;

    DATA_FAILS(&spec, FLEET_ECONFIG, "no statistics");
    spec.statistics = &s;
    b = data_first(&spec);
    CHECK(number(b, 0, 0) == 2.0f);
    CHECK(number(b, 0, 1) == (float)((log1p(1.0) - 0.5) / 4));
    CHECK(number(b, 0, 2) == 0.0f && number(b, 0, 3) == 0.0f);
    CHECK(number(b, 1, 0) == (float)(8 / 1e-5));
}

TEST(statistics_report_bad_cells)
{
    fl_stream_spec spec = spec_of(&wide, 1, "1,2,3,4,5\n\n1,2,x,y,5\n");
    fl_statistics s;

    CHECK_FAILS(fl_stream_statistics(&spec, &s), FLEET_EFORMAT,
                "table.csv:3: slot \"x\"");
    CHECK_INT(s.n, 0);
    spec = spec_of(&wide, 1, "1e308,2,3,4,5\n-1e308,2,3,4,5\n1e308,0,0,0,0\n");
    CHECK_FAILS(fl_stream_statistics(&spec, &s), FLEET_ENUMERIC, "too large");
    spec.files = (const char *const[]){"/no/such/file"};
    CHECK_FAILS(fl_stream_statistics(&spec, &s), FLEET_ENOENT, "/no/such/file");
}

TEST(without_columns_that_standardize_there_are_no_statistics)
{
    const fleet_slot slot = {.name = "x", .columns = first, .n_column = 1};
    fl_stream_spec spec = spec_of(&slot, 1, "not even a number\n");
    fl_statistics s;

    CHECK_OK(fl_stream_statistics(&spec, &s));
    CHECK_INT(s.n, 0);
    fl_statistics_done(&s);
}

TEST(statistics_come_back_from_json_exactly)
{
    double mean[] = {0.1, -1e300, 5e-324}, deviation[] = {1, 1.0 / 3, 1e-310};
    const fl_statistics s = {.n = 3, .mean = mean, .deviation = deviation};
    fl_statistics back;
    fl_json *json;
    char *text;
    fl_at at;

    CHECK_OK(fl_statistics_save(&s, &json));
    text = fl_json_print(json, false);
    fl_json_free(json);
    CHECK_OK(fl_json_parse(text, strlen(text), "test", &json));
    fl_free(text);
    at = fl_at_root(json);
    CHECK_OK(fl_statistics_load(&back, &at));
    CHECK_INT(back.n, 3);
    CHECK(!memcmp(back.mean, mean, sizeof mean));
    CHECK(!memcmp(back.deviation, deviation, sizeof deviation));
    fl_statistics_done(&back);
    fl_json_free(json);
}

TEST(json_that_is_no_statistics_is_refused)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "1",
        "{\"mean\":[1]}",
        "{\"mean\":[1],\"deviation\":[0]}",
        "{\"mean\":[1],\"deviation\":[-1]}",
        "{\"mean\":1,\"deviation\":1}",
        "{\"mean\":[1,2],\"deviation\":[1]}",
        "{\"mean\":[\"a\"],\"deviation\":[1]}",
        "{\"mean\":[1],\"deviation\":[1],\"x\":1}"};
    fl_statistics s;

    for (int i = 0; i < DATA_N(texts); i++) {
        fl_json *json;

        CHECK_OK(fl_json_parse(texts[i], strlen(texts[i]), "test", &json));
        fl_at at = fl_at_root(json);
        CHECK_STATUS(fl_statistics_load(&s, &at), FLEET_ECONFIG);
        CHECK_INT(s.n, 0);
        fl_json_free(json);
    }
}
