// A bound kernel of a chip that computes in this process: a C function that takes an array of pointers to its arguments.
#include "hot.h"

typedef void (*Function)(void** arguments, long n0, long n1, long n2);

typedef struct {
  int cell, slot;
  Py_ssize_t extra, itemsize;
} BufferCell;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Function function;
  long n[3];
  int n_cells, n_buffers;
  void** cells;
  BufferCell* buffers;
  int* number_cells;
  Numbers numbers;
  PyObject *keep, *lock;
} Call;

// The lock of a chip: its kernels run one after the other, whichever thread launches them, and from Python too.
typedef struct {
  PyObject_HEAD
  PyThread_type_lock lock;
} Lock;

static PyObject* lock_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  Lock* self = (Lock*)type->tp_alloc(type, 0);
  if (self && !(self->lock = PyThread_allocate_lock())) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return (PyObject*)self;
}

static void lock_dealloc(PyObject* object) {
  Lock* self = (Lock*)object;
  if (self->lock) PyThread_free_lock(self->lock);
  Py_TYPE(object)->tp_free(object);
}

static PyObject* lock_enter(PyObject* object, PyObject* none) {
  PyThread_type_lock lock = ((Lock*)object)->lock;
  Py_BEGIN_ALLOW_THREADS
  PyThread_acquire_lock(lock, WAIT_LOCK);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject* lock_exit(PyObject* object, PyObject* args) {
  PyThread_release_lock(((Lock*)object)->lock);
  Py_RETURN_NONE;
}

static PyMethodDef lock_methods[] = {
    {"__enter__", lock_enter, METH_NOARGS, NULL}, {"__exit__", lock_exit, METH_VARARGS, NULL}, {NULL}};

PyTypeObject LockType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Lock",
    .tp_basicsize = sizeof(Lock),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = lock_methods,
    .tp_new = lock_new,
    .tp_dealloc = lock_dealloc,
};

int call_now(PyObject* object, PyObject** handles, const Py_ssize_t* offsets, PyObject* values) {
  Call* self = (Call*)object;
  void *pointers[MAX_SLOTS], *cells[MAX_SLOTS];
  char numbers[MAX_SLOTS][CELL];
  memcpy(cells, self->cells, self->n_cells * sizeof(void*));
  for (int i = 0; i < self->n_buffers; ++i) {
    const BufferCell b = self->buffers[i];
    PyObject* address = PyObject_GetAttr(handles[b.slot], s_address);
    if (!address) return -1;
    char* start = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (!start && PyErr_Occurred()) return -1;
    pointers[i] = start + (offsets[b.slot] + b.extra) * b.itemsize;
    cells[b.cell] = &pointers[i];
  }
  if (self->numbers.n) {
    if (numbers_take(&self->numbers, values, numbers)) return -1;
    for (int i = 0; i < self->numbers.n; ++i) cells[self->number_cells[i]] = numbers[i];
  }
  PyThread_type_lock lock = ((Lock*)self->lock)->lock;
  PyThreadState* state = PyEval_SaveThread();
  PyThread_acquire_lock(lock, WAIT_LOCK);
  self->function(cells, self->n[0], self->n[1], self->n[2]);
  PyThread_release_lock(lock);
  PyEval_RestoreThread(state);
  return 0;
}

static PyObject* call_call(PyObject* object, PyObject* const* args, size_t n, PyObject* names) {
  Call* self = (Call*)object;
  if (PyVectorcall_NARGS(n) != 3 || names || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "takes lists of handles, offsets and values");
    return NULL;
  }
  PyObject* values = PySequence_List(args[2]);
  if (!values) return NULL;
  PyObject* handles[MAX_SLOTS];
  Py_ssize_t offsets[MAX_SLOTS];
  int status = 0;
  for (int i = 0; i < self->n_buffers && !status; ++i) {
    const int slot = self->buffers[i].slot;
    if (slot >= PyList_GET_SIZE(args[0]) || slot >= PyList_GET_SIZE(args[1])) {
      PyErr_SetString(PyExc_IndexError, "fewer buffers than the kernel takes");
      status = -1;
      break;
    }
    handles[slot] = PyList_GET_ITEM(args[0], slot);
    offsets[slot] = PyLong_AsSsize_t(PyList_GET_ITEM(args[1], slot));
    status = offsets[slot] == -1 && PyErr_Occurred() ? -1 : 0;
  }
  if (!status) status = call_now(object, handles, offsets, values);
  Py_DECREF(values);
  if (status) return NULL;
  Py_RETURN_NONE;
}

// The arguments in order: bytes, (slot, extra, itemsize) of a buffer, or (get, steady) of a launch-time number.
static int add_cell(Call* self, int cell, PyObject* a, char** scalars) {
  if (PyBytes_Check(a)) {
    memcpy(*scalars, PyBytes_AS_STRING(a), PyBytes_GET_SIZE(a));
    self->cells[cell] = *scalars;
    *scalars += (PyBytes_GET_SIZE(a) + CELL - 1) / CELL * CELL;
    return 0;
  }
  if (PyTuple_GET_SIZE(a) == 3) {
    BufferCell* b = &self->buffers[self->n_buffers++];
    b->cell = cell;
    int good = PyArg_ParseTuple(a, "inn", &b->slot, &b->extra, &b->itemsize);
    if (good && (b->slot < 0 || b->slot >= MAX_SLOTS)) {
      PyErr_SetString(PyExc_ValueError, "a slot beyond the limit");
      good = 0;
    }
    return good ? 0 : -1;
  }
  PyObject* get;
  int steady;
  if (!PyArg_ParseTuple(a, "Op", &get, &steady)) return -1;
  self->number_cells[self->numbers.n] = cell;
  numbers_add(&self->numbers, get, steady);
  return 0;
}

static PyObject* call_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  unsigned long long address;
  long n0, n1, n2;
  PyObject *arguments, *lock, *keep;
  if (!PyArg_ParseTuple(args, "K(lll)O!O!O", &address, &n0, &n1, &n2, &PyList_Type, &arguments, &LockType, &lock, &keep)) return NULL;
  const Py_ssize_t n = PyList_GET_SIZE(arguments);
  if (n > MAX_SLOTS) return PyErr_Format(PyExc_ValueError, "%zd arguments", n);
  size_t room = CELL;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* a = PyList_GET_ITEM(arguments, i);
    if (PyBytes_Check(a)) room += PyBytes_GET_SIZE(a) + CELL;
    else if (!PyTuple_Check(a)) return PyErr_Format(PyExc_TypeError, "argument %zd is neither bytes nor a tuple", i);
  }
  Call* self = (Call*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = call_call;
  self->function = (Function)(uintptr_t)address;
  self->n[0] = n0, self->n[1] = n1, self->n[2] = n2;
  self->n_cells = (int)n;
  self->numbers.n_last = -1;
  self->keep = Py_NewRef(keep);
  self->lock = Py_NewRef(lock);
  // One block: the cells, then the scalars.
  const size_t cells = (n * sizeof(void*) + CELL - 1) / CELL * CELL;
  self->cells = PyMem_Malloc(cells + room);
  self->buffers = PyMem_Malloc((n + 1) * sizeof(BufferCell));
  self->number_cells = PyMem_Malloc((n + 1) * sizeof(int));
  if (!self->cells || !self->buffers || !self->number_cells || numbers_init(&self->numbers, n)) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  char* scalars = (char*)self->cells + cells;
  for (int i = 0; i < n; ++i)
    if (add_cell(self, i, PyList_GET_ITEM(arguments, i), &scalars)) {
      Py_DECREF(self);
      return NULL;
    }
  return (PyObject*)self;
}

static int call_traverse(PyObject* object, visitproc visit, void* arg) {
  Call* self = (Call*)object;
  Py_VISIT(self->keep);
  return numbers_traverse(&self->numbers, visit, arg);
}

static void call_dealloc(PyObject* object) {
  Call* self = (Call*)object;
  PyObject_GC_UnTrack(object);
  numbers_drop(&self->numbers);
  Py_XDECREF(self->keep);
  Py_XDECREF(self->lock);
  PyMem_Free(self->cells);
  PyMem_Free(self->buffers);
  PyMem_Free(self->number_cells);
  Py_TYPE(object)->tp_free(object);
}

PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Call, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = call_new,
    .tp_traverse = call_traverse,
    .tp_dealloc = call_dealloc,
};
