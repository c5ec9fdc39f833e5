/* libsvm.h - lines of LIBSVM and SVM-light: a label, then INDEX:VALUE. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_libsvm;
