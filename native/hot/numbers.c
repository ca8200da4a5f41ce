// The numbers of a kernel that are known only at launch, as bytes.
#include "hot.h"

static int same_values(const Numbers* self, PyObject* values) {
  if (PyList_GET_SIZE(values) != self->n_last) return 0;
  for (int i = 0; i < self->n_last; ++i)
    if (PyList_GET_ITEM(values, i) != self->last[i]) return 0;
  return 1;
}

static void forget(Numbers* self) {
  const int n = self->n_last;
  self->n_last = -1;
  for (int i = 0; i < n; ++i) Py_CLEAR(self->last[i]);
}

int numbers_init(Numbers* self, Py_ssize_t most) {
  self->n = 0;
  self->n_last = -1;
  self->steady = 1;
  self->all = PyMem_Malloc((most + 1) * sizeof(Number));
  if (self->all) return 0;
  PyErr_NoMemory();
  return -1;
}

void numbers_add(Numbers* self, PyObject* get, int steady) {
  self->all[self->n++].get = Py_NewRef(get);
  self->steady &= steady;
}

// Getters are Python: another thread may launch the same kernel meanwhile, so the bytes go to the caller's own.
int numbers_take(Numbers* self, PyObject* values, char (*bytes)[CELL]) {
  if (self->steady && same_values(self, values)) {
    for (int i = 0; i < self->n; ++i) memcpy(bytes[i], self->all[i].data, CELL);
    return 0;
  }
  for (int i = 0; i < self->n; ++i) {
    PyObject* data = PyObject_CallOneArg(self->all[i].get, values);
    if (!data) return -1;
    char* start;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(data, &start, &n) || n > CELL) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a number of more than 16 bytes");
      Py_DECREF(data);
      return -1;
    }
    memset(bytes[i], 0, CELL);
    memcpy(bytes[i], start, n);
    Py_DECREF(data);
  }
  const Py_ssize_t n = PyList_GET_SIZE(values);
  if (self->steady && n <= (Py_ssize_t)(sizeof self->last / sizeof *self->last)) {
    forget(self);
    for (int i = 0; i < self->n; ++i) memcpy(self->all[i].data, bytes[i], CELL);
    for (Py_ssize_t i = 0; i < n; ++i) self->last[i] = Py_NewRef(PyList_GET_ITEM(values, i));
    self->n_last = (int)n;
  }
  return 0;
}

int numbers_traverse(Numbers* self, visitproc visit, void* arg) {
  for (int i = 0; i < self->n; ++i) Py_VISIT(self->all[i].get);
  for (int i = 0; i < self->n_last; ++i) Py_VISIT(self->last[i]);
  return 0;
}

void numbers_drop(Numbers* self) {
  forget(self);
  for (int i = 0; i < self->n; ++i) Py_DECREF(self->all[i].get);
  self->n = 0;
  PyMem_Free(self->all);
  self->all = NULL;
}
