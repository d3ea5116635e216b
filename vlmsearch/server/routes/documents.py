"""Documents: read, add, change, delete, and their images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import FileResponse, Response

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.index import add_reported
from vlmsearch.indexing.containers import kind_of, with_parts
from vlmsearch.indexing.facts import DATE
from vlmsearch.indexing.metadata import change_metadata
from vlmsearch.media.images import file_of
from vlmsearch.principals import HEADER
from vlmsearch.schema import FILTER, Key, model_of
from vlmsearch.server.bodies import Body, body_docs, body_of, form_docs, form_of
from vlmsearch.server.dependencies import CallerHere, ReadIndex, ServiceHere, WriteIndex
from vlmsearch.server.errors import Json, not_found
from vlmsearch.server.forms import (
    AddForm,
    DocumentForm,
    IdsForm,
    InfoAnswer,
    MetadataForm,
    given_in,
    image_bytes,
)
from vlmsearch.server.images import SentImage, image_path, original
from vlmsearch.server.routes.search import info_json
from vlmsearch.server.service import OpenIndex, Service
from vlmsearch.stores.base import Store, reject_list_of
from vlmsearch.stores.filter_text import read_filter
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.stores.listing import GalleryPlace, count_documents, documents_after, gallery_after
from vlmsearch.stores.versions import named_passages
from vlmsearch.types import READERS, Document, IndexReport, Reject, document_of, file_of_part, is_id
from vlmsearch.wire import ChangedCount, DeletedCount, DocumentPage, Rejects, ValueCount, ValueCounts

router = APIRouter(prefix="/api/v1/indexes/{index}", tags=["documents"])
_PART = "part:"
_CACHED = {"Cache-Control": "private, max-age=300", "Vary": f"Authorization, Cookie, {HEADER}"}
_PAGE = 100
_MAX_PAGE = 1000

_MAX_KEYS = 50
_OTHER_PAGE = "`after` is that of the page before, in the same order"

_WHERE = {
    "name": "where",
    "in": "query",
    "description": 'A filter on metadata in JSON, such as {"year": 2020}, or as text, such as year>=2020.',
    "content": {"application/json": {"schema": FILTER}},
}
"""The parameter as it is documented: FastAPI has none whose text is JSON."""
FilterText = Annotated[str | None, Query(include_in_schema=False)]
OneId = Annotated[str, Query(min_length=1, max_length=1024, description="The id of a document.")]


@router.get("", response_model=InfoAnswer)
async def info(service: ServiceHere, index: ReadIndex, caller: CallerHere) -> Json:
    """Describe an index: its documents, and the encoder that built it."""
    return await service.answer(info_json, index, caller)


@router.get("/documents", response_model=model_of(DocumentPage), openapi_extra={"parameters": [_WHERE]})
async def read(
    service: ServiceHere,
    index: ReadIndex,
    id: Annotated[list[str], Query(max_length=_MAX_PAGE, description="Ids of documents; none for a page of all.")] = [],  # noqa: B006 - FastAPI copies it
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE, description="How many documents a page has.")] = _PAGE,
    after: Annotated[str | None, Query(description="The `after` of the page before.")] = None,
    where: FilterText = None,
    order: Annotated[
        Literal["id", "gallery"], Query(description="By the ids; or pictures first, and of each kind the newest first.")
    ] = "id",
) -> Json:
    """Return documents by their ids, or all documents page by page."""
    if id:
        return await service.answer(_by_ids, index, id)
    if order == "gallery":
        return await service.answer(_gallery, index, limit, _place(after), _condition(where))
    return await service.answer(_page, index, limit, after, _condition(where))


@router.get("/facets", response_model=model_of(ValueCounts), openapi_extra={"parameters": [_WHERE]})
async def facets(
    service: ServiceHere,
    index: ReadIndex,
    key: Annotated[list[Key], Query(max_length=_MAX_KEYS, description="Keys of the metadata.")] = [],  # noqa: B006 - as above
    where: FilterText = None,
) -> Json:
    """Count the documents that pass a filter, and the values that they have."""
    return await service.answer(_facets, index, key, _condition(where))


def _facets(index: OpenIndex, keys: list[str], condition: Filter | None) -> ValueCounts:
    counted = count_documents(index.pipeline.store, keys, condition)
    facets = {
        key: tuple(ValueCount(value, count) for value, count in counts.items())
        for key, counts in counted.values.items()
    }
    return ValueCounts(counted.total, facets)


def _by_ids(index: OpenIndex, ids: list[str]) -> DocumentPage:
    distinct = list(dict.fromkeys(ids))
    store = index.pipeline.store
    by_id = {document.id: document for document in store.get(distinct)}
    missing = tuple(id for id in distinct if id not in by_id)
    return DocumentPage(tuple(by_id[id] for id in distinct if id in by_id), missing, named_passages(store, by_id))


def _condition(where: str | None) -> Filter | None:
    given = read_filter(where or "")
    return parse_filter(given) if given else None


def _page(index: OpenIndex, limit: int, after: str | None, condition: Filter | None) -> DocumentPage:
    documents = documents_after(index.pipeline.store, _place_id(after) if after else "", limit + 1, condition)
    return DocumentPage(tuple(documents[:limit]), after=documents[limit - 1].id if len(documents) > limit else None)


def _place(after: str | None) -> GalleryPlace | None:
    """Return where a page of the gallery begins: the text is that which `_gallery` gave."""
    if after is None:
        return None
    group, _, rest = after.partition(" ")
    older, _, id = rest.partition(" ")
    try:
        return GalleryPlace(int(group), float(older), _place_id(id))
    except ValueError as exc:
        raise ConfigError(_OTHER_PAGE) from exc


def _place_id(id: str) -> str:
    if not is_id(id):
        raise ConfigError(_OTHER_PAGE)
    return id


def _gallery(index: OpenIndex, limit: int, after: GalleryPlace | None, condition: Filter | None) -> DocumentPage:
    page = gallery_after(index.pipeline.store, after, limit + 1, DATE, condition)
    documents = tuple(document for _, document in page[:limit])
    if len(page) <= limit:
        return DocumentPage(documents)
    group, older, id = page[limit - 1][0]
    return DocumentPage(documents, after=f"{group} {older} {id}")


@router.post("/documents", response_model=model_of(IndexReport), openapi_extra=body_docs(AddForm, "documents"))
async def add(
    service: ServiceHere, index: WriteIndex, body: Annotated[Body[AddForm], Depends(body_of(AddForm, "documents"))]
) -> Json:
    """Index documents: add new ones, replace changed ones, skip unchanged ones.

    Images are Base64 or data URLs; or files of a form whose part `documents` is the JSON, named as `part:NAME`.
    """
    return await service.answer(_add, service, index, body)


def _add(service: Service, index: OpenIndex, body: Body[AddForm]) -> IndexReport:
    forms = body.form.documents
    images = {form.id: data for form in forms if is_id(form.id) and (data := _image_of(form, body.files)) is not None}
    with service.uploads.keeping(index.name, _all(service, index), [form.id for form in forms], images) as files:
        documents = [Document(**{**given_in(form), "image": files.get(form.id)}) for form in forms]
        report = add_reported(index.pipeline, **{**given_in(body.form), "documents": documents})
    return replace(report, rejects=_without_folders(service, report.rejects))


def _all(service: Service, index: OpenIndex) -> Store:
    """Return all documents of an index, also those that the caller may not read: their uploads stay."""
    return service.indexes[index.name].pipeline.store


def _image_of(form: DocumentForm, files: Mapping[str, bytes]) -> bytes | None:
    if form.image is None or not form.image.startswith(_PART):
        return None if form.image is None else image_bytes(form.image)
    name = form.image.removeprefix(_PART)
    if name not in files:
        raise InvalidInputError("invalid", f"{form.id}: the form has no file {name!r}; it has {sorted(files)}")
    return files[name]


def _without_folders(service: Service, rejects: Iterable[Reject]) -> tuple[Reject, ...]:
    return tuple(replace(reject, message=service.uploads.without_folders(reject.message)) for reject in rejects)


@router.post("/documents/delete", response_model=model_of(DeletedCount), openapi_extra=form_docs(IdsForm))
async def delete(service: ServiceHere, index: WriteIndex, form: Annotated[IdsForm, Depends(form_of(IdsForm))]) -> Json:
    """Remove documents, with their vectors and uploads. Unknown ids are ignored."""
    return await service.answer(_delete, service, index, form.ids)


def _delete(service: Service, index: OpenIndex, ids: list[str]) -> DeletedCount:
    given = with_parts(index.pipeline.store, ids)
    with service.uploads.keeping(index.name, _all(service, index), given, {}):
        return DeletedCount(index.pipeline.store.delete(given))


@router.post("/documents/metadata", response_model=model_of(ChangedCount), openapi_extra=form_docs(MetadataForm))
async def change(
    service: ServiceHere, index: WriteIndex, form: Annotated[MetadataForm, Depends(form_of(MetadataForm))]
) -> Json:
    """Set and remove keys of documents' metadata. Vectors stay as they are."""
    return await service.answer(_change, index, form)


def _change(index: OpenIndex, form: MetadataForm) -> ChangedCount:
    changed = change_metadata(index.pipeline.store, form.ids, form.set, form.unset)
    if READERS in {*form.set, *form.unset}:
        index.pipeline._forget()  # noqa: SLF001 - restricted handles have other documents now
    return ChangedCount(changed)


@router.get("/rejects", response_model=model_of(Rejects))
async def rejects(service: ServiceHere, index: ReadIndex) -> Json:
    """List the inputs that could not be used, with the reasons."""
    return await service.answer(_rejects, service, index)


def _rejects(service: Service, index: OpenIndex) -> Rejects:
    return Rejects(_without_folders(service, reject_list_of(index.pipeline.store).rejects()))


_PICTURE = {200: {"content": {"image/*": {}}, "description": "The image."}, 304: {"description": "It is the same."}}


@router.get("/image", response_class=Response, responses=_PICTURE)  # type: ignore[arg-type]
async def image(
    service: ServiceHere, index: ReadIndex, id: OneId, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """Return the image of a document in its own format."""

    def find() -> SentImage:
        return original(_path_of(index, id), service.settings.image_limits)

    return _picture(await service.draw(find), if_none_match)


@router.get("/thumbnail", response_class=Response, responses=_PICTURE)  # type: ignore[arg-type]
async def thumbnail(
    service: ServiceHere,
    index: ReadIndex,
    id: OneId,
    size: Annotated[int, Query(ge=16, le=2048, description="The longer side, in pixels.")] = 256,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return the image of a document as a small JPEG."""

    def find() -> SentImage:
        path = _path_of(index, id)
        tag = service.thumbnails.tag(path, size)
        return SentImage(b"", "", tag) if _quoted(tag) == if_none_match else service.thumbnails.get(path, size)

    return _picture(await service.draw(find), if_none_match)


_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/pdf": {}, "video/*": {}}, "description": "The file."},
    206: {"content": {"application/pdf": {}, "video/*": {}}, "description": "The bytes that `Range` names."},
    416: {"content": {"text/plain": {}}, "description": "`Range` names no bytes of the file."},
}
_FILE_POLICY = "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""The policy that a browser's own PDF viewer needs."""


@router.get("/file", response_class=FileResponse, responses=_FILE)
async def file(service: ServiceHere, index: ReadIndex, id: OneId) -> Response:
    """Return the PDF or the film of a document, or of the part that it is.

    A browser opens it where a fragment says: `#page=3`, `#t=12.480`, as at the end of the ids of parts.
    """

    def find() -> Path:
        path = file_of(_path_of(index, id))
        whole = [file_of_part(document_of(id))]
        is_hidden = not index.pipeline.store.get(whole) and bool(_all(service, index).get(whole))
        if kind_of(str(path)) is None or is_hidden:  # the file holds more than a part that has other readers
            raise not_found(f"{id!r} is no part of a file")
        return path

    path = await service.call(find)
    headers = {**_CACHED, "Content-Security-Policy": _FILE_POLICY, "X-Content-Type-Options": "nosniff"}
    return FileResponse(path, headers=headers, filename=path.name, content_disposition_type="inline")


def _path_of(index: OpenIndex, id: str) -> Path:
    documents = index.pipeline.store.get([document_of(id)])
    path = image_path(documents[0]) if documents else None
    if path is None:
        raise not_found(f"no document {id!r} with an image file in {index.name}")
    if not file_of(path).exists():
        raise not_found(f"the image of {id!r} is not there any more")
    return path


def _quoted(tag: str) -> str:
    return f'"{tag}"'


def _picture(picture: SentImage, known: str | None) -> Response:
    headers = {"ETag": _quoted(picture.tag), **_CACHED}
    if known == _quoted(picture.tag):
        return Response(status_code=304, headers=headers)
    return Response(picture.data, media_type=picture.type, headers={**headers, "X-Content-Type-Options": "nosniff"})
