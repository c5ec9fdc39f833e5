/* arrow_error.h - what Arrow throws, as a status and a text. */
#pragma once

#include <new>
#include <string>

#include <parquet/exception.h>

#include "data/format/parquet_table.h"

/* Where nothing is left for its text, none. */
template <typename Where> std::string arrow_place(Where where) noexcept
{
    try {
        return where();
    } catch (...) {
        return std::string();
    }
}

/* Call f, which gives a status or throws. where: the file, and the part of it
 * that is worked on, as texts. code: of what is no lack of memory. */
template <typename Function, typename Where>
fleet_status arrow_guarded(fleet_status code, Where where, Function f)
{
    try {
        return f();
    } catch (const std::bad_alloc &) {
        return fl_fail(FLEET_ENOMEM, "out of memory: %.500s",
                       arrow_place(where).c_str());
    } catch (const parquet::ParquetStatusException &e) {
        if (e.status().IsOutOfMemory())
            return fl_fail(FLEET_ENOMEM, "out of memory: %.500s",
                           arrow_place(where).c_str());
        return fl_fail(code, "%.500s: %.300s", arrow_place(where).c_str(),
                       e.what());
    } catch (const std::exception &e) {
        return fl_fail(code, "%.500s: %.300s", arrow_place(where).c_str(),
                       e.what());
    } catch (...) {
        return fl_fail(code, "%.500s: an unknown exception",
                       arrow_place(where).c_str());
    }
}
