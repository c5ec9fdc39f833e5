/* arrow_write.cpp - a Parquet file of columns, a group of rows at a time. */
#include "data/arrow/arrow_write.h"

#include <string>
#include <vector>

#include <arrow/io/file.h>
#include <parquet/column_writer.h>
#include <parquet/file_writer.h>
#include <parquet/schema.h>

#include "data/arrow/arrow_error.h"

struct fl_parquet_writer {
    std::string path;
    std::vector<fl_parquet_column> column;
    std::shared_ptr<arrow::io::FileOutputStream> to;
    std::unique_ptr<parquet::ParquetFileWriter> writer;

    /* of the column that is written */
    std::vector<int16_t> defined, repeated;
    std::vector<uint64_t> values;
    std::vector<parquet::ByteArray> texts;
};

namespace
{

using parquet::Repetition;
using parquet::schema::GroupNode;
using parquet::schema::NodePtr;
using parquet::schema::NodeVector;
using parquet::schema::PrimitiveNode;

enum { THERE = 1, LIST_IS_EMPTY = 1, IN_LIST = 3 }; /* levels of definition */

NodePtr value_node(const std::string &name, fl_parquet_kind kind)
{
    using parquet::LogicalType;
    using parquet::Type;
    const Repetition::type r = Repetition::OPTIONAL;

    switch (kind) {
    case FL_PARQUET_INT:
        return PrimitiveNode::Make(name, r, LogicalType::Int(64, true),
                                   Type::INT64);
    case FL_PARQUET_UINT:
        return PrimitiveNode::Make(name, r, LogicalType::Int(64, false),
                                   Type::INT64);
    case FL_PARQUET_REAL:
        return PrimitiveNode::Make(name, r, LogicalType::None(), Type::DOUBLE);
    default:
        return PrimitiveNode::Make(name, r, LogicalType::String(),
                                   Type::BYTE_ARRAY);
    }
}

NodePtr column_node(const fl_parquet_column &c)
{
    if (!c.is_list)
        return value_node(c.name, c.kind);
    return GroupNode::Make(c.name, Repetition::OPTIONAL,
                           {GroupNode::Make("list", Repetition::REPEATED,
                                            {value_node("element", c.kind)})},
                           parquet::LogicalType::List());
}

void open_file(fl_parquet_writer &w)
{
    NodeVector fields;
    auto options = parquet::WriterProperties::Builder()
                       .compression(parquet::Compression::SNAPPY)
                       ->enable_page_checksum()
                       ->build();

    for (const fl_parquet_column &c : w.column)
        fields.push_back(column_node(c));
    PARQUET_ASSIGN_OR_THROW(w.to, arrow::io::FileOutputStream::Open(w.path));
    w.writer = parquet::ParquetFileWriter::Open(
        w.to,
        std::static_pointer_cast<GroupNode>(
            GroupNode::Make("schema", Repetition::REQUIRED, fields)),
        options);
}

void add_value(fl_parquet_writer &w, const fl_parquet_column &c,
               const fl_parquet_piece &p, size_t i)
{
    if (c.kind != FL_PARQUET_TEXT) {
        w.values.push_back(((const uint64_t *)p.values)[i]);
        return;
    }

    const uint32_t *begin = (const uint32_t *)p.values + i;

    w.texts.emplace_back(begin[1] - begin[0],
                         (const uint8_t *)p.bytes + begin[0]);
}

void add_level(fl_parquet_writer &w, int defined, int repeated)
{
    w.defined.push_back((int16_t)defined);
    w.repeated.push_back((int16_t)repeated);
}

void add_row(fl_parquet_writer &w, const fl_parquet_column &c,
             const fl_parquet_piece &p, size_t row)
{
    const bool there = !p.there || p.there[row];

    if (!c.is_list) {
        add_level(w, there ? THERE : 0, 0);
        if (there)
            add_value(w, c, p, row);
        return;
    }
    if (!there || p.offsets[row] == p.offsets[row + 1])
        add_level(w, there ? LIST_IS_EMPTY : 0, 0);
    for (size_t i = p.offsets[row]; there && i < p.offsets[row + 1]; i++) {
        add_level(w, IN_LIST, i > p.offsets[row]);
        add_value(w, c, p, i);
    }
}

void write_column(fl_parquet_writer &w, parquet::ColumnWriter *to,
                  const fl_parquet_column &c)
{
    const int64_t n = (int64_t)w.defined.size();
    const int16_t *d = w.defined.data(), *r = w.repeated.data();

    if (c.kind == FL_PARQUET_TEXT)
        static_cast<parquet::ByteArrayWriter *>(to)->WriteBatch(n, d, r,
                                                                w.texts.data());
    else if (c.kind == FL_PARQUET_REAL)
        static_cast<parquet::DoubleWriter *>(to)->WriteBatch(
            n, d, r, (const double *)(const void *)w.values.data());
    else
        static_cast<parquet::Int64Writer *>(to)->WriteBatch(
            n, d, r, (const int64_t *)(const void *)w.values.data());
}

template <typename Function>
fleet_status guarded_write(const fl_parquet_writer *w, Function f)
{
    return arrow_guarded(
        FLEET_EIO, [&] { return w->path; },
        [&]() -> fleet_status {
            f();
            return FLEET_OK;
        });
}

} // namespace

fleet_status fl_arrow_create(const char *path, const fl_parquet_column *column,
                             int n, fl_parquet_writer **writer)
{
    auto where = [&] { return std::string(path); };

    *writer = nullptr;
    return arrow_guarded(FLEET_EIO, where, [&]() -> fleet_status {
        std::unique_ptr<fl_parquet_writer> w(new fl_parquet_writer);

        w->path = path;
        w->column.assign(column, column + n);
        open_file(*w);
        *writer = w.release();
        return FLEET_OK;
    });
}

fleet_status fl_arrow_write(fl_parquet_writer *w, int64_t rows,
                            const fl_parquet_piece *piece)
{
    return guarded_write(w, [&] {
        parquet::RowGroupWriter *group = w->writer->AppendRowGroup();

        for (size_t i = 0; i < w->column.size(); i++) {
            w->defined.clear();
            w->repeated.clear();
            w->values.clear();
            w->texts.clear();
            for (int64_t row = 0; row < rows; row++)
                add_row(*w, w->column[i], piece[i], (size_t)row);
            write_column(*w, group->NextColumn(), w->column[i]);
        }
        group->Close();
    });
}

fleet_status fl_arrow_finish(fl_parquet_writer *w)
{
    return guarded_write(w, [&] {
        w->writer->Close();
        PARQUET_THROW_NOT_OK(w->to->Close());
    });
}

/* Arrow's writer ends its file when it is destroyed, with what rows there are:
 * that fails, as the file is closed before. */
void fl_arrow_abandon(fl_parquet_writer *w)
{
    try {
        if (w)
            (void)w->to->Close();
        delete w;
    } catch (...) {
    }
}
