"""The protocol's messages, made when this is imported; no generated code, no file to compile.

Below stands what the public protocol fixes, and all that goes over the wire: names, numbers and types of the fields.
The classes live in a pool of their own, so that a client library with the same messages may be imported beside them.
Fields that batchd never reads or writes are left out: protobuf skips what it doesn't know.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_PACKAGE = "inference"
_NAME_AND_VERSION = {"name": "1 string", "version": "2 string"}
_CHANGE = {"repository_name": "1 string", "model_name": "2 string", "parameters": "3 map ModelRepositoryParameter"}

# Each field: its number; `repeated`, `map` (from strings), or `choice` (one of those so marked); its type.
_MESSAGES: dict[str, dict[str, str]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": "1 bool"},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": "1 bool"},
    "ModelReadyRequest": _NAME_AND_VERSION,
    "ModelReadyResponse": {"ready": "1 bool"},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"name": "1 string", "version": "2 string", "extensions": "3 repeated string"},
    "ModelMetadataRequest": _NAME_AND_VERSION,
    "ModelMetadataResponse": {
        "name": "1 string",
        "versions": "2 repeated string",
        "platform": "3 string",
        "inputs": "4 repeated TensorMetadata",
        "outputs": "5 repeated TensorMetadata",
    },
    "TensorMetadata": {"name": "1 string", "datatype": "2 string", "shape": "3 repeated int64"},
    "InferParameter": {
        "bool_param": "1 choice bool",
        "int64_param": "2 choice int64",
        "string_param": "3 choice string",
        "double_param": "4 choice double",
        "uint64_param": "5 choice uint64",
    },
    "InferTensorContents": {
        "bool_contents": "1 repeated bool",
        "int_contents": "2 repeated int32",
        "int64_contents": "3 repeated int64",
        "uint_contents": "4 repeated uint32",
        "uint64_contents": "5 repeated uint64",
        "fp32_contents": "6 repeated float",
        "fp64_contents": "7 repeated double",
        "bytes_contents": "8 repeated bytes",
    },
    "ModelInferRequest": {
        "model_name": "1 string",
        "model_version": "2 string",
        "id": "3 string",
        "parameters": "4 map InferParameter",
        "inputs": "5 repeated InferInputTensor",
        "outputs": "6 repeated InferRequestedOutputTensor",
        "raw_input_contents": "7 repeated bytes",
    },
    "InferInputTensor": {
        "name": "1 string",
        "datatype": "2 string",
        "shape": "3 repeated int64",
        "parameters": "4 map InferParameter",
        "contents": "5 InferTensorContents",
    },
    "InferRequestedOutputTensor": {"name": "1 string", "parameters": "2 map InferParameter"},
    "ModelInferResponse": {
        "model_name": "1 string",
        "model_version": "2 string",
        "id": "3 string",
        "parameters": "4 map InferParameter",
        "outputs": "5 repeated InferOutputTensor",
        "raw_output_contents": "6 repeated bytes",
    },
    "InferOutputTensor": {"name": "1 string", "datatype": "2 string", "shape": "3 repeated int64"},
    "ModelStreamInferResponse": {"error_message": "1 string", "infer_response": "2 ModelInferResponse"},
    "ModelConfigRequest": _NAME_AND_VERSION,
    "ModelConfigResponse": {"config": "1 ModelConfig"},
    "ModelConfig": {
        "name": "1 string",
        "platform": "2 string",
        "max_batch_size": "4 int32",
        "input": "5 repeated ModelInput",
        "output": "6 repeated ModelOutput",
        "backend": "17 string",
    },
    "ModelInput": {"name": "1 string", "data_type": "2 DataType", "dims": "4 repeated int64"},
    "ModelOutput": {"name": "1 string", "data_type": "2 DataType", "dims": "3 repeated int64"},
    "ModelStatisticsRequest": _NAME_AND_VERSION,
    "ModelStatisticsResponse": {"model_stats": "1 repeated ModelStatistics"},
    "ModelStatistics": {
        "name": "1 string",
        "version": "2 string",
        "inference_count": "4 uint64",
        "execution_count": "5 uint64",
        "inference_stats": "6 InferStatistics",
        "batch_stats": "7 repeated InferBatchStatistics",
    },
    "InferStatistics": {
        "success": "1 StatisticDuration",
        "fail": "2 StatisticDuration",
        "queue": "3 StatisticDuration",
        "compute_input": "4 StatisticDuration",
        "compute_infer": "5 StatisticDuration",
        "compute_output": "6 StatisticDuration",
        "cache_hit": "7 StatisticDuration",
        "cache_miss": "8 StatisticDuration",
    },
    "InferBatchStatistics": {"batch_size": "1 uint64"},
    "StatisticDuration": {"count": "1 uint64", "ns": "2 uint64"},
    "RepositoryIndexRequest": {"repository_name": "1 string", "ready": "2 bool"},
    "RepositoryIndexResponse": {"models": "1 repeated ModelIndex"},
    "ModelIndex": {"name": "1 string", "version": "2 string", "state": "3 string", "reason": "4 string"},
    "ModelRepositoryParameter": {
        "bool_param": "1 choice bool",
        "int64_param": "2 choice int64",
        "string_param": "3 choice string",
        "bytes_param": "4 choice bytes",
    },
    "RepositoryModelLoadRequest": _CHANGE,
    "RepositoryModelLoadResponse": {},
    "RepositoryModelUnloadRequest": _CHANGE,
    "RepositoryModelUnloadResponse": {},
}
_DATA_TYPES = (
    *("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING"),
)
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="batchd/inference.proto", package=_PACKAGE, syntax="proto3")
    values = file.enum_type.add(name="DataType").value
    for number, name in enumerate(_DATA_TYPES):
        values.add(name=f"TYPE_{name}", number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, said in fields.items():
            _add_field(message, field, said.split())
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, said: list[str]) -> None:
    field = message.field.add(name=name, number=int(said[0]), label=_Field.LABEL_OPTIONAL)
    _set_type(field, said[-1])
    if "repeated" in said:
        field.label = _Field.LABEL_REPEATED
    elif "choice" in said:
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    elif "map" in said:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _set_type(entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL), "string")
        _set_type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), said[-1])
        field.label = _Field.LABEL_REPEATED
        field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"


def _set_type(field: descriptor_pb2.FieldDescriptorProto, name: str) -> None:
    if name in _MESSAGES:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{name}"
    elif name == "DataType":
        field.type, field.type_name = _Field.TYPE_ENUM, f".{_PACKAGE}.{name}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{name.upper()}")


def _classes() -> dict[str, type[Message]]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


MESSAGES: dict[str, Any] = _classes()
"""The message classes by name."""
