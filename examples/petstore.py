"""A shop of FastAPI whose operations are tools, in one process: ``mcpbus serve examples/petstore.py``, or run it.

The models of the application are the schemas of the tools. Only reading and ordering are offered; what removes pets is not.
"""

from typing import Annotated

from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel, Field

from mcpbus import Server


class Pet(BaseModel):
    name: str
    kind: str
    price: float = Field(gt=0)


class Order(BaseModel):
    pet: str
    gift: bool = False


app = FastAPI(title="Pet store", version="1.0.0")
pets = {"rex": Pet(name="Rex", kind="dog", price=80), "tom": Pet(name="Tom", kind="cat", price=50)}


@app.get("/pets", tags=["pets"])
async def list_pets(
    kind: Annotated[list[str] | None, Query(description="Only these kinds")] = None,
) -> list[Pet]:
    """List the pets that are for sale."""
    return [pet for pet in pets.values() if kind is None or pet.kind in kind]


@app.get("/pets/{pet_id}", tags=["pets"])
async def get_pet(pet_id: str) -> Pet:
    """Look at one pet."""
    if pet_id not in pets:
        raise HTTPException(404, f"there is no pet {pet_id}")
    return pets[pet_id]


@app.post("/orders", tags=["orders"])
async def order_pet(order: Order) -> Pet:
    """Order a pet, which is not for sale any more."""
    if order.pet not in pets:
        raise HTTPException(409, f"{order.pet} is not for sale")
    return pets.pop(order.pet)


@app.delete("/pets/{pet_id}", tags=["admin"])
async def remove_pet(pet_id: str) -> None:
    """Remove a pet."""
    pets.pop(pet_id, None)


server = Server.from_asgi(app, exclude=["tag:admin"])

if __name__ == "__main__":
    server.run()
