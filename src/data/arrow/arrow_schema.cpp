/* arrow_schema.cpp - a column by its name, and what a slot has of it. */
#include "data/arrow/arrow_schema.h"

#include <string>

namespace
{

enum { MOST_TOLD = 8 }; /* columns that an error lists */

bool is_text(const parquet::LogicalType &t)
{
    return t.is_none() || t.is_string() || t.is_enum() || t.is_JSON();
}

/* False: it is nothing that a slot can have. */
bool find_kind(const parquet::ColumnDescriptor &d, fl_parquet_kind *kind)
{
    const parquet::LogicalType &t = *d.logical_type();

    *kind = FL_PARQUET_INT;
    switch (d.physical_type()) {
    case parquet::Type::BOOLEAN:
        return t.is_none();
    case parquet::Type::INT32:
    case parquet::Type::INT64:
        if (t.is_int() &&
            !static_cast<const parquet::IntLogicalType &>(t).is_signed())
            *kind = FL_PARQUET_UINT;
        return t.is_none() || t.is_int();
    case parquet::Type::FLOAT:
    case parquet::Type::DOUBLE:
        *kind = FL_PARQUET_REAL;
        return t.is_none();
    case parquet::Type::BYTE_ARRAY:
        *kind = FL_PARQUET_TEXT;
        return is_text(t);
    default:
        return false;
    }
}

/* A column, or a member of a structure, or the one column of a list. */
int find_leaf(const parquet::SchemaDescriptor &s, const std::string &name,
              int *found)
{
    int leaf = -1;

    *found = 0;
    for (int i = 0; i < s.num_columns(); i++) {
        const bool whole = s.Column(i)->path()->ToDotString() == name;

        if (!whole && s.GetColumnRoot(i)->name() != name)
            continue;
        leaf = i;
        ++*found;
    }
    return leaf;
}

std::string all_names(const parquet::SchemaDescriptor &s)
{
    const parquet::schema::GroupNode &root = *s.group_node();
    std::string all;

    for (int i = 0; i < root.field_count() && i < MOST_TOLD; i++)
        all += (i > 0 ? ", \"" : "\"") + root.field(i)->name() + "\"";
    return root.field_count() > MOST_TOLD ? all + ", ..." : all;
}

} // namespace

fleet_status arrow_find_column(const parquet::SchemaDescriptor &s,
                               const char *path, fl_parquet_column *what,
                               int *leaf)
{
    int found = 0;
    const char *name = what->name;

    *leaf = find_leaf(s, name, &found);
    if (found == 0)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s: it has no column \"%.60s\": it has %.300s",
                       path, name, all_names(s).c_str());

    const parquet::ColumnDescriptor &d = *s.Column(*leaf);
    const int depth = d.max_repetition_level();

    if (found > 1 || depth > 1)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s: column \"%.60s\": expected a single one, or a "
                       "list of single values, got %s",
                       path, name,
                       found > 1 ? "several columns" : "lists in lists");
    what->is_list = depth == 1;
    if (find_kind(d, &what->kind))
        return FLEET_OK;
    return fl_fail(FLEET_EFORMAT,
                   "%.500s: column \"%.60s\": expected booleans, integers, "
                   "floats, doubles or texts, got %s (%s)",
                   path, name, parquet::TypeToString(d.physical_type()).c_str(),
                   d.logical_type()->ToString().c_str());
}
