/* arrow_read.cpp - chosen columns of a Parquet file, group by group, a piece of
 * rows at a time. Of a group whose columns are large no more is in memory than
 * a page of each, and some MB of numbers. These are read ahead of the pieces,
 * as a column's dictionary has left the caches when all other columns have had
 * their turn.
 *
 * Parquet keeps a column as levels and values. A level of definition says
 * whether it has a value, one of repetition 0 that a row begins. */
#include "data/arrow/arrow_read.h"

#include <cstring>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <arrow/memory_pool.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "data/arrow/arrow_error.h"
#include "data/arrow/arrow_schema.h"

namespace
{

enum {
    AHEAD = 1024,      /* levels of a list that are read at once, at least */
    NUMBERS = 8 << 20, /* bytes of numbers that are read ahead, of all columns,
                           if that is no more than MOST_AHEAD of each */
    MOST_AHEAD = 1 << 16,
    TEXTS = 128,        /* levels of texts that are read at once, at most */
    ENOUGH = 4 << 20,   /* bytes of a column for one call */
    BUFFER = 256 << 10, /* bytes of a column that are read at once, */
    WHOLE = 32 << 20    /* if a group has more than that */
};

struct column_state {
    fl_parquet_column what = {};
    int leaf = -1;
    parquet::Type::type type = parquet::Type::BOOLEAN;
    int16_t most_defined = 0; /* the level of what has a value */
    std::shared_ptr<parquet::ColumnReader> reader;

    /* read, the first used_* of them handed out; the vectors have room */
    std::vector<int16_t> defined, repeated;
    std::vector<uint64_t> values;
    std::vector<uint32_t> begins; /* of texts, n_value + 1 of them, in */
    std::vector<char> bytes;
    size_t n_level = 0, n_value = 0, n_byte = 0;
    size_t used_levels = 0, used_values = 0;
    bool at_end = false; /* the group has no more levels */

    std::vector<char> raw;        /* as the file has them */
    std::vector<uint64_t> spaced; /* with room for nulls */
    std::vector<uint32_t> spaced_begins, offsets;
    std::vector<uint8_t> there;
};

template <typename T> T *room(std::vector<T> &v, size_t n)
{
    if (v.size() < n)
        v.resize(n > 2 * v.size() ? n : 2 * v.size());
    return v.data();
}

} // namespace

struct fl_parquet_file {
    std::string path;
    std::unique_ptr<parquet::ParquetFileReader> reader;
    std::shared_ptr<parquet::RowGroupReader> group;
    int at = -1;               /* the group's number */
    std::vector<int64_t> rows; /* of each group */
    std::vector<column_state> column;
    size_t ahead = 0; /* numbers of a column that are read at once */
};

namespace
{

void describe(const fl_parquet_file &f, column_state &c)
{
    const parquet::ColumnDescriptor &d =
        *f.reader->metadata()->schema()->Column(c.leaf);

    c.type = d.physical_type();
    c.most_defined = d.max_definition_level();
}

/* --- values --------------------------------------------------------------- */

template <typename Type> struct read_levels {
    int64_t levels, values;
};

/* Up to n levels more, and their values as the file has them. */
template <typename Type>
read_levels<Type> next_levels(column_state &c, int64_t n,
                              typename Type::c_type *to)
{
    auto &reader = static_cast<parquet::TypedColumnReader<Type> &>(*c.reader);
    int16_t *defined = nullptr, *repeated = nullptr;
    read_levels<Type> r = {0, 0};

    if (c.most_defined > 0)
        defined = room(c.defined, c.n_level + (size_t)n) + c.n_level;
    if (c.what.is_list)
        repeated = room(c.repeated, c.n_level + (size_t)n) + c.n_level;
    r.levels = reader.ReadBatch(n, defined, repeated, to, &r.values);
    c.n_level += (size_t)r.levels;
    return r;
}

/* Values that a number of 64 bits is made of. */
template <typename Type, typename To>
int64_t add_numbers(column_state &c, int64_t n)
{
    typedef typename Type::c_type raw;
    raw *from = (raw *)(void *)room(c.raw, (size_t)n * sizeof(raw));
    const read_levels<Type> r = next_levels<Type>(c, n, from);
    To *to =
        (To *)(void *)room(c.values, c.n_value + (size_t)r.values) + c.n_value;

    for (int64_t i = 0; i < r.values; i++)
        to[i] = (To)from[i];
    c.n_value += (size_t)r.values;
    return r.levels;
}

/* The same of a type that has them already. */
template <typename Type> int64_t take_numbers(column_state &c, int64_t n)
{
    static_assert(sizeof(typename Type::c_type) == sizeof(uint64_t), "");
    uint64_t *to = room(c.values, c.n_value + (size_t)n) + c.n_value;
    const read_levels<Type> r =
        next_levels<Type>(c, n, (typename Type::c_type *)(void *)to);

    c.n_value += (size_t)r.values;
    return r.levels;
}

int64_t add_texts(column_state &c, int64_t n)
{
    typedef parquet::ByteArray raw;
    raw *from = (raw *)(void *)room(c.raw, (size_t)n * sizeof(raw));
    const auto r = next_levels<parquet::ByteArrayType>(c, n, from);
    uint32_t *begin =
        room(c.begins, c.n_value + (size_t)r.values + 1) + c.n_value;

    for (int64_t i = 0; i < r.values; i++) {
        char *to = room(c.bytes, c.n_byte + from[i].len) + c.n_byte;

        if (from[i].len > 0)
            memcpy(to, from[i].ptr, from[i].len);
        begin[i] = (uint32_t)c.n_byte;
        c.n_byte += from[i].len;
        if (c.n_byte > UINT32_MAX)
            throw parquet::ParquetException("texts of more than 4 GB");
    }
    begin[r.values] = (uint32_t)c.n_byte;
    c.n_value += (size_t)r.values;
    return r.levels;
}

int64_t add_some(column_state &c, int64_t n)
{
    const bool is_unsigned = c.what.kind == FL_PARQUET_UINT;

    switch (c.type) {
    case parquet::Type::BOOLEAN:
        return add_numbers<parquet::BooleanType, int64_t>(c, n);
    case parquet::Type::INT32: /* unsigned ones have the bits of signed ones */
        if (!is_unsigned)
            return add_numbers<parquet::Int32Type, int64_t>(c, n);
        {
            const size_t before = c.n_value;
            const int64_t got = add_numbers<parquet::Int32Type, uint64_t>(c, n);

            for (size_t i = before; i < c.n_value; i++)
                c.values[i] = (uint32_t)c.values[i];
            return got;
        }
    case parquet::Type::INT64:
        return take_numbers<parquet::Int64Type>(c, n);
    case parquet::Type::FLOAT:
        return add_numbers<parquet::FloatType, double>(c, n);
    case parquet::Type::DOUBLE:
        return take_numbers<parquet::DoubleType>(c, n);
    default:
        return add_texts(c, n);
    }
}

/* Some of n levels; false: there are none. */
bool add_levels(column_state &c, size_t n)
{
    const size_t most =
        c.what.kind == FL_PARQUET_TEXT && n > TEXTS ? (size_t)TEXTS : n;

    c.at_end = add_some(c, (int64_t)most) == 0;
    return !c.at_end;
}

bool has_enough(const column_state &c)
{
    return (c.what.kind == FL_PARQUET_TEXT
                ? c.n_byte
                : c.n_value * sizeof(uint64_t)) >= ENOUGH;
}

/* What was not handed out goes to the front. */
void drop_used(column_state &c)
{
    const size_t n = c.n_level - c.used_levels, m = c.n_value - c.used_values;
    const bool text = c.what.kind == FL_PARQUET_TEXT;

    if (n > 0 && c.most_defined > 0)
        memmove(c.defined.data(), c.defined.data() + c.used_levels,
                n * sizeof(int16_t));
    if (n > 0 && c.what.is_list)
        memmove(c.repeated.data(), c.repeated.data() + c.used_levels,
                n * sizeof(int16_t));
    if (m > 0 && text) {
        const uint32_t gone = c.begins[c.used_values];

        for (size_t i = 0; i <= m; i++)
            c.begins[i] = c.begins[c.used_values + i] - gone;
        if (c.n_byte > gone) /* or there may be none at all */
            memmove(c.bytes.data(), c.bytes.data() + gone, c.n_byte - gone);
        c.n_byte -= gone;
    } else if (m > 0) {
        memmove(c.values.data(), c.values.data() + c.used_values,
                m * sizeof(uint64_t));
    }
    if (m == 0)
        c.n_byte = 0;
    c.n_level = n;
    c.n_value = m;
    c.used_levels = c.used_values = 0;
}

/* --- pieces --------------------------------------------------------------- */

void refuse_rows()
{
    throw parquet::ParquetException("it has fewer rows than its row group");
}

/* Values of flat rows, behind what was handed out, at their rows' places. */
void space_out(column_state &c, size_t rows)
{
    const bool text = c.what.kind == FL_PARQUET_TEXT;
    const int16_t *defined = c.defined.data() + c.used_levels;
    uint8_t *there = room(c.there, rows);
    uint64_t *to = text ? nullptr : room(c.spaced, rows);
    uint32_t *begin = text ? room(c.spaced_begins, rows + 1) : nullptr;
    size_t value = c.used_values;

    room(c.begins, 1);
    for (size_t i = 0; i < rows; i++) {
        there[i] = defined[i] == c.most_defined;
        if (value == c.n_value && there[i])
            refuse_rows();
        if (text)
            begin[i] = value < c.n_value ? c.begins[value] : (uint32_t)c.n_byte;
        else
            to[i] = there[i] ? c.values[value] : 0;
        value += there[i];
    }
    if (text)
        begin[rows] = value < c.n_value ? c.begins[value] : (uint32_t)c.n_byte;
}

/* How many of the rows are read, one at least. */
size_t fill_flat(column_state &c, size_t rows)
{
    while (c.n_level < rows && (c.n_level == 0 || !has_enough(c)))
        if (!add_levels(c, rows - c.n_level))
            refuse_rows();
    return c.n_level < rows ? c.n_level : rows;
}

/* All of the rows, and further ones for later pieces. */
size_t fill_numbers(column_state &c, size_t rows, size_t ahead)
{
    if (c.n_level - c.used_levels >= rows)
        return rows;
    drop_used(c);
    while (c.n_level < rows)
        if (!add_levels(c, ahead > rows ? ahead - c.n_level : rows - c.n_level))
            refuse_rows();
    return rows;
}

/* Of the rows behind what was handed out. */
size_t count_values(const column_state &c, size_t rows)
{
    size_t n = 0;

    if (c.n_level - c.used_levels == c.n_value - c.used_values)
        return rows; /* no null has been read */
    for (size_t i = 0; i < rows; i++)
        n += c.defined[c.used_levels + i] == c.most_defined;
    return n;
}

void give_flat(column_state &c, size_t rows, fl_parquet_piece *p)
{
    const bool text = c.what.kind == FL_PARQUET_TEXT;
    const size_t n = count_values(c, rows);

    if (n > c.n_value - c.used_values)
        refuse_rows();
    *p = fl_parquet_piece{};
    p->n = rows;
    if (n < rows) {
        space_out(c, rows);
        p->there = c.there.data();
    }
    p->values = text       ? p->there ? (void *)c.spaced_begins.data()
                                      : (void *)c.begins.data()
                      : p->there ? (void *)c.spaced.data()
                           : (void *)(c.values.data() + c.used_values);
    p->bytes = c.bytes.data();
    c.used_levels += rows;
    c.used_values += n;
}

/* A row of a list ends where the next one begins, or with the group. */
size_t count_begun(const column_state &c, size_t from)
{
    size_t n = 0;

    for (size_t i = from; i < c.n_level; i++)
        n += c.repeated[i] == 0;
    return n;
}

size_t fill_lists(column_state &c, size_t rows)
{
    size_t begun = count_begun(c, 0);

    while (begun <= rows && (begun < 2 || !has_enough(c))) {
        const size_t before = c.n_level;

        if (!add_levels(c, rows > AHEAD ? rows : (size_t)AHEAD))
            break;
        begun += count_begun(c, before);
    }
    if ((c.at_end && begun < rows) || (c.n_level > 0 && c.repeated[0] != 0))
        refuse_rows();
    begun -= !c.at_end;
    return begun < rows ? begun : rows;
}

void give_lists(column_state &c, size_t rows, fl_parquet_piece *p)
{
    uint32_t *offset = room(c.offsets, rows + 1);
    size_t row = 0, value = 0, i = 0;

    for (; i < c.n_level; i++) {
        if (c.repeated[i] == 0) {
            if (row == rows)
                break;
            offset[row++] = (uint32_t)value;
        }
        value += c.defined[i] == c.most_defined;
    }
    if (value > c.n_value)
        refuse_rows();
    offset[rows] = (uint32_t)value;
    room(c.begins, 1);
    *p = fl_parquet_piece{};
    p->n = value;
    p->values = c.what.kind == FL_PARQUET_TEXT ? (void *)c.begins.data()
                                               : (void *)c.values.data();
    p->bytes = c.bytes.data();
    p->offsets = offset;
    c.used_levels = i;
    c.used_values = value;
}

bool is_flat_number(const column_state &c)
{
    return !c.what.is_list && c.what.kind != FL_PARQUET_TEXT;
}

size_t fill(const fl_parquet_file &f, column_state &c, size_t rows)
{
    if (is_flat_number(c))
        return fill_numbers(c, rows, f.ahead);
    drop_used(c);
    return c.what.is_list ? fill_lists(c, rows) : fill_flat(c, rows);
}

/* Of each column of numbers as many. */
size_t choose_ahead(const fl_parquet_file &f)
{
    size_t n = 0, ahead;

    for (const column_state &c : f.column)
        n += is_flat_number(c);
    ahead = NUMBERS / sizeof(uint64_t) / (n > 0 ? n : 1);
    return ahead < MOST_AHEAD ? ahead : (size_t)MOST_AHEAD;
}

void begin_group(fl_parquet_file &f, int group)
{
    f.at = -1;
    f.group = f.reader->RowGroup(group);
    for (column_state &c : f.column) {
        c.n_level = c.n_value = c.n_byte = c.used_levels = c.used_values = 0;
        c.at_end = false;
        c.reader = f.group->Column(c.leaf);
    }
    f.at = group;
}

/* --- the file ------------------------------------------------------------- */

/* Its memory is the system's, so that what is freed is free. Columns of a group
 * are read as wholes, or through buffers, out of which they are copied. */
parquet::ReaderProperties properties(bool whole)
{
    parquet::ReaderProperties p(arrow::system_memory_pool());

    if (!whole)
        p.enable_buffered_stream();
    p.set_buffer_size(BUFFER);
    p.set_page_checksum_verification(true);
    return p;
}

/* Do the columns of each group take little memory as wholes? */
bool has_small_groups(const fl_parquet_file &f)
{
    const parquet::FileMetaData &all = *f.reader->metadata();

    for (int i = 0; i < all.num_row_groups(); i++) {
        const auto group = all.RowGroup(i);
        int64_t left = WHOLE;

        for (const column_state &c : f.column) {
            const int64_t size =
                group->ColumnChunk(c.leaf)->total_compressed_size();

            if (size < 0 || size > left)
                return false;
            left -= size;
        }
    }
    return true;
}

std::shared_ptr<arrow::io::RandomAccessFile> open_bytes(
    const fl_parquet_file &f, const char *text, size_t size)
{
    std::shared_ptr<arrow::io::RandomAccessFile> from;

    if (text)
        return std::make_shared<arrow::io::BufferReader>(
            std::make_shared<arrow::Buffer>((const uint8_t *)text,
                                            (int64_t)size));
    PARQUET_ASSIGN_OR_THROW(from, arrow::io::ReadableFile::Open(f.path));
    return from;
}

/* Pages have checksums, but not what says how many rows there are: it is said
 * twice. */
void count_rows(fl_parquet_file &f)
{
    const parquet::FileMetaData &all = *f.reader->metadata();
    int64_t left = all.num_rows();

    for (int i = 0; i < all.num_row_groups(); i++) {
        f.rows.push_back(all.RowGroup(i)->num_rows());
        if (f.rows.back() < 0 || f.rows.back() > left)
            break;
        left -= f.rows.back();
    }
    if (left != 0 || f.rows.size() != (size_t)all.num_row_groups())
        throw parquet::ParquetException(
            "its row groups do not have as many rows as the file");
}

} // namespace

fleet_status fl_arrow_open(const char *path, const char *text, size_t text_size,
                           fl_parquet_column *column, int n,
                           fl_parquet_file **file)
{
    auto where = [&] { return std::string(path); };

    *file = nullptr;
    return arrow_guarded(FLEET_ECORRUPT, where, [&]() -> fleet_status {
        std::unique_ptr<fl_parquet_file> f(new fl_parquet_file);
        std::shared_ptr<arrow::io::RandomAccessFile> from;

        f->path = path;
        FL_TRY(arrow_guarded(FLEET_EIO, where, [&]() -> fleet_status {
            from = open_bytes(*f, text, text_size);
            return FLEET_OK;
        }));
        f->reader = parquet::ParquetFileReader::Open(from, properties(false));
        count_rows(*f);
        f->column.resize((size_t)n);
        for (int i = 0; i < n; i++) {
            column_state &c = f->column[(size_t)i];

            FL_TRY(arrow_find_column(*f->reader->metadata()->schema(), path,
                                     &column[i], &c.leaf));
            c.what = column[i];
            describe(*f, c);
        }
        f->ahead = choose_ahead(*f);
        if (has_small_groups(*f))
            f->reader = parquet::ParquetFileReader::Open(from, properties(true),
                                                         f->reader->metadata());
        *file = f.release();
        return FLEET_OK;
    });
}

int fl_arrow_count_groups(const fl_parquet_file *f)
{
    return (int)f->rows.size();
}

int64_t fl_arrow_count_rows(const fl_parquet_file *f, int group)
{
    return f->rows[(size_t)group];
}

fleet_status fl_arrow_read(fl_parquet_file *f, int group, int64_t *rows,
                           fl_parquet_piece *piece)
{
    size_t i = 0, n = (size_t)*rows;
    auto where = [&] {
        return f->path + ": column \"" +
               (i < f->column.size() ? f->column[i].what.name : "") +
               "\", row group " + std::to_string(group);
    };

    return arrow_guarded(FLEET_ECORRUPT, where, [&]() -> fleet_status {
        if (f->at != group)
            begin_group(*f, group);
        for (; i < f->column.size(); i++) {
            column_state &c = f->column[i];

            n = fill(*f, c, n);
        }
        for (i = 0; i < f->column.size(); i++) {
            column_state &c = f->column[i];

            if (c.what.is_list)
                give_lists(c, n, &piece[i]);
            else
                give_flat(c, n, &piece[i]);
        }
        *rows = (int64_t)n;
        return FLEET_OK;
    });
}

void fl_arrow_close(fl_parquet_file *f)
{
    delete f;
}
